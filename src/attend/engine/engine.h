// Engine: the step loop that all commands share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/engine_config.h"
#include "attend/engine/generation_request.h"
#include "attend/engine/output/request_output.h"
#include "attend/engine/request.h"
#include "attend/exec/executor_info.h"
#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

class Adapters;
class Checkpoint;
class AdaptiveSteps;
class Drafter;
class Executors;
class ImageSteps;
class OutputProcessor;
class Pooler;
class ReqToTokenPool;
class RequestMemory;
class Scheduler;
struct ScheduledRequest;
struct ScheduledStep;
class SlotAllocator;
class StepRunner;
class StepTrace;
class StateSlots;
class SwaSlots;
class SyntheticAcceptance;

// Error for a prompt that leaves no room in the context for an output token.
class ContextLengthError : public Error {
 public:
  explicit ContextLengthError(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

// Resolved config: printed at start, returned by the API.
struct EngineInfo {
  std::vector<ExecutorInfo> executors;  // at least one; the first computes the steps that are scheduled
  bool deterministic = false;           // a token's bits depend only on its own request
  int context_length = 0;
  size_t max_token_bytes = 0;  // of the tokenizer's longest token; 0: there is no tokenizer
  BatchLimits limits;
  int page_size = 0;
  int pool_slots = 0;      // without the padding page
  int swa_pool_slots = 0;  // slots of the window half; 0: no window half
  // Models with recurrent layers: snapshots of states for the prefix cache, and the distance of those in a
  // prompt, in tokens.
  int num_state_snapshots = 0, state_snapshot_interval = 0;
  std::optional<EvictionPolicy> prefix_cache;  // none: requests share no prefixes
  int64_t num_host_cache_tokens = 0;           // of the host tier of the prefix cache; 0: none
  SpeculativeOptions speculation;              // with resolved sizes
  SchedulePolicy schedule_policy = SchedulePolicy::kFcfs;
  bool overlap_schedule = false;  // resolved from EngineConfig
  std::string no_images;          // reason why prompts may not have images; empty: they may
  std::string no_adapters;        // reason why requests may not have LoRA adapters; empty: they may

  // Longer texts cannot fit the context. Without a tokenizer there is no limit.
  size_t max_prompt_bytes() const {
    return max_token_bytes == 0 ? SIZE_MAX : static_cast<size_t>(context_length) * max_token_bytes;
  }
  const ExecutorInfo& target() const { return executors.front(); }
  // Sums over the executors.
  size_t weight_bytes() const { return sum(&ExecutorInfo::weight_bytes); }
  size_t pool_bytes() const { return sum(&ExecutorInfo::pool_bytes); }
  size_t graph_bytes() const { return sum(&ExecutorInfo::graph_bytes); }

 private:
  size_t sum(size_t ExecutorInfo::*bytes) const {
    size_t total = 0;
    for (const ExecutorInfo& executor : executors) total += executor.*bytes;
    return total;
  }
};

struct EngineStats {
  int64_t num_steps = 0;
  int64_t num_overlapped_steps = 0;  // subset: launched before the previous step's tokens were known
  int64_t num_failed_steps = 0;      // not included above
  // Tokens of all steps; a step that holds a prompt samples the prompt's first output token.
  int64_t num_generated_tokens = 0;
  int64_t num_prefill_tokens = 0;  // computed in steps that hold a prompt, including decoding requests
  int64_t num_cascade_steps = 0;   // steps that attended once to a prefix shared by their requests
  int64_t num_decode_tokens = 0;   // computed in steps without a prompt
  int64_t num_cached_tokens = 0;   // sum of Request::num_cached_tokens
  int64_t num_evicted_tokens = 0;  // tokens of evicted pages of the prefix cache
  int64_t num_recoveries = 0;      // Scheduler::num_recoveries
  DraftCounts drafts;              // zeros without speculation
  int peak_used_slots = 0;
  double prefill_seconds = 0.0;  // extend and mixed steps
  double decode_seconds = 0.0;
  // Host time of decode steps outside of plan, model and sampling: scheduling, step arrays, detokenization,
  // and the sink. Time during which another step was computed is not included.
  double decode_host_seconds = 0.0;
  // Time of drafts in decode steps, and of plan, model and sampling in decode steps.
  double draft_seconds = 0.0, decode_device_seconds = 0.0;
};

// Only one thread uses an engine. All checks that do not depend on weights happen before weights are loaded.
class Engine {
 public:
  // Throws Error for a model, option or size that is not supported; see load_model, resolve.
  explicit Engine(const EngineConfig& config, const EngineProgress& progress = {});
  ~Engine();

  // Checks a request and encodes its prompt. Throws Error(kInvalidArgument) if the prompt is empty, contains
  // an id outside of the vocabulary, or leaves no room for a token in the context or the pool;
  // Error(kUnsupported) for text without a tokenizer. Does not change the engine: thread-safe, including
  // during a step.
  std::unique_ptr<Request> prepare(GenerationRequest request) const;
  // Queues a request from prepare() with ids id to id + n - 1, which the caller keeps unique. If memory runs
  // out, queues nothing and throws std::bad_alloc.
  void enqueue(std::unique_ptr<Request> request, RequestId id);

  // The same for a PoolingRequest: one request per input. prepare() throws Error(kInvalidArgument) if there
  // is no input, or if an input is empty, too long for a step, or contains an id outside of the vocabulary;
  // Error(kUnsupported) unless the engine has EngineConfig::pooling.
  std::vector<std::unique_ptr<Request>> prepare(PoolingRequest request) const;
  void enqueue(std::vector<std::unique_ptr<Request>> requests, RequestId id);

  // Calls prepare() and enqueue() with the next id. Throws like prepare(), and then changes nothing.
  RequestId submit(GenerationRequest request);
  RequestId submit(PoolingRequest request);
  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params);
  RequestId submit(std::string_view prompt, const SamplingParams& params);

  // Runs one step: admit, allocate, batch, plan, run, sample. Calls `sink` once for each request that
  // received a token or ended. Returns false if there was nothing to do.
  //
  // If steps overlap (EngineConfig::overlap_schedule), the next step may be in flight when step() returns.
  // Changes to its requests take effect when its tokens are read.
  //
  // If a step throws, the requests of this step end with FinishReason::kError, other requests continue. If
  // the sink throws, the request of this call ends, the other requests of the step receive their tokens, and
  // step() rethrows the first exception at its end.
  bool step(const OutputSink& sink);
  // Waits for the step that step() left in flight, if there is one, and starts no other.
  void finish_in_flight(const OutputSink& sink);
  bool in_flight() const { return in_flight_ != nullptr; }

  // Ends a waiting or running request and calls `sink` with the last outputs of its completions. Returns
  // false if no request has this id: it may have ended before. Not allowed in a sink.
  bool abort(RequestId id, const OutputSink& sink);

  // LoRA adapters by name. load_adapter() reads one; unload_adapter() removes one: requests that use it
  // continue, and its memory is freed after the last one. Thread-safe, also during a step. Throw
  // Error(kUnsupported) with EngineInfo::no_adapters or for a kind of adapter that attend does not apply,
  // Error(kInvalidArgument) for a name in use, Error(kNotFound) for a missing file or an unknown name, and
  // Error(kCorruptFile) for an adapter that does not fit the model.
  void load_adapter(const AdapterPath& adapter) const;
  void unload_adapter(std::string_view name) const;
  // Adds an adapter of random values that changes every layer, for benchmarks.
  void add_dummy_adapter(const std::string& name, int rank) const;
  std::vector<AdapterPath> adapters() const;  // in the order of names

  // Evicts all prefixes that no running request uses, and removes all pages of tiers below the pool,
  // including the files of this model.
  void flush_cache();
  // Throws Error(kInternal) unless every page of the KV pool has one owner. Reads all tables, so only tests
  // and debug builds call it.
  void check_memory() const;

  // Replaces the weights by those of another checkpoint of the same model, and checks all of them before the
  // first one is replaced. Running requests continue, with K/V of the old weights unless `flush_cache`, which
  // computes them again and drops the prefix cache with all of its tiers. Released weights are loaded from
  // there later. Between steps only (finish_in_flight()).
  //
  // Throws Error and keeps the old weights: kInvalidArgument for the config.json of another model or a tensor
  // of another shape, kNotFound for a missing file, kCorruptFile, and kUnsupported. On a GPU, a file that
  // cannot be read after these checks may leave the weights released.
  void update_weights(const std::filesystem::path& model_path, bool flush_cache = true);
  // Preempts all running requests: they wait, and are computed again. Between steps only.
  void preempt_all();
  // Frees memory; the requests are preempted if their K/V are lost. Between steps only, and no step is
  // allowed until allocate_memory() has allocated all parts again, which throws as Engine's constructor. K/V
  // are lost; weights are read from the files again.
  void release_memory(MemoryParts parts);
  void allocate_memory(MemoryParts parts);
  MemoryParts released_memory() const;
  // Directory or file of the current weights; empty for dummy weights.
  const std::filesystem::path& weights_path() const { return config_.model_path; }

  // Reason for which all further steps fail, after the failure of a rank (EngineConfig::tp_size); empty:
  // there is none. Thread-safe.
  std::string failure() const;

  // As Model::check_weights. Called after requests have finished: a checkpoint file that is overwritten in
  // place changes the weights that requests use.
  void check_weights() const;

  // Time spans of steps. Thread-safe start and stop.
  StepTrace& trace() { return *trace_; }

  const EngineInfo& info() const { return info_; }
  const EngineStats& stats() const { return stats_; }
  const ModelSpec& model_spec() const { return model_spec_; }
  // Null if the model directory has no tokenizer.json.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  int num_used_slots() const;       // slots of running requests; shared slots count once
  int num_cached_slots() const;     // slots of the prefix cache, including those in use
  int num_evictable_slots() const;  // slots of the prefix cache that no request uses
  CacheTierStats cache_tiers() const;
  int num_running() const;  // requests with pages
  int num_waiting() const;  // requests without pages
  int64_t num_preemptions() const;

 private:
  void require_changeable(const char* operation) const;
  void check_same_model(const Checkpoint& checkpoint) const;
  // Preempts all requests, and drops the prefix cache with all of its tiers.
  void drop_caches();
  void open_tiers();
  // Throws Error(kUnsupported) unless requests may have adapters.
  void require_adapters() const;
  // Adds the end-of-sequence token that the tokenizer's files name.
  void add_tokenizer_eos();
  // Warns about token ids in the model's files that exceed its vocabulary.
  void warn_about_token_ids(const std::filesystem::path& model_path) const;
  ScheduledStep& schedule();
  // Returns false if there is nothing to do.
  bool begin_step(Clock::time_point start, const OutputSink& sink);
  // Computes a part of an image that a running request waits for.
  void encode_images(const OutputSink& sink);
  // Returns null if the next step can not be scheduled yet.
  ScheduledStep* begin_overlapped_step(const ScheduledStep& step);
  void end_step(ScheduledStep& step, const OutputSink& sink);
  void discard_step();
  void advance(const ScheduledStep& step, View<const int32_t> tokens, const OutputSink& sink);
  void fail_step(const ScheduledStep& step, std::string_view message, const OutputSink& sink);
  // Drafts tokens for the scheduled step; if drafting fails, the step has no drafts.
  void draft(const ScheduledStep& step);
  // Reports the end of a request to the drafter.
  void end_drafts(const Request& request);
  // Accepts the drafted tokens that are equal to the sampled ones; `tokens` has one per row of logits.
  void accept_drafts(ScheduledStep& step, View<const int32_t> tokens);
  // Accepts those of one request; `first_row`: its first row of logits.
  void accept_sampled(const ScheduledRequest& part, View<const int32_t> tokens, size_t first_row);
  // Recurrent states: passes the tokens of the step that remain to the next launch.
  void keep_accepted_states(const ScheduledStep& step);
  // Pools the hidden states of a request into its vector, and ends the request.
  void pool(Request& request, const TensorView& hidden_states, const OutputSink& sink);
  std::vector<int32_t> stop_token_ids(const SamplingParams& params) const;
  void count(const ScheduledStep& step, double seconds);

  EngineInfo info_;
  EngineStats stats_;
  ModelSpec model_spec_;
  std::string config_text_;  // config.json at the start; empty: there is none
  ModelSpec configured_;     // its content, without changes by options
  EngineConfig config_;      // model_path: of the current weights
  bool recomputes_longrope_ = false;
  uint64_t random_seed_ = 0;
  std::optional<Tokenizer> tokenizer_;
  std::string tokenizer_note_;  // note on the model directory if it has no tokenizer
  std::unique_ptr<StepTrace> trace_;
  std::unique_ptr<ReqToTokenPool> rows_;
  std::unique_ptr<SlotAllocator> slots_;
  std::unique_ptr<SwaSlots> window_slots_;   // null: layers with a window keep all tokens
  std::unique_ptr<StateSlots> state_slots_;  // null: the model has no recurrent states
  std::unique_ptr<Executors> executors_;
  std::unique_ptr<Adapters> adapters_;
  std::unique_ptr<RequestMemory> memory_;
  std::unique_ptr<Drafter> drafter_;                // null: no speculation
  std::unique_ptr<SyntheticAcceptance> synthetic_;  // null: drafts are verified
  std::unique_ptr<AdaptiveSteps> adaptive_;         // null: drafts have the length of the options
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<ImageSteps> image_steps_;  // null: the engine encodes no images
  std::unique_ptr<Pooler> pooler_;           // null: the engine generates
  std::unique_ptr<OutputProcessor> outputs_;
  RequestId next_id_ = 1;
  bool overlaps_ = false;
  std::vector<size_t> accepted_rows_;   // rows of logits of a request's tokens, in a step
  ScheduledStep* in_flight_ = nullptr;  // launched, and not waited for
  Clock::time_point step_start_;  // start of the step in flight, or arrival of the previous step's tokens
};

}  // namespace attend
#pragma GCC visibility pop
