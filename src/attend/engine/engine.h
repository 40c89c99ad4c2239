// Engine: the one step loop. Every command calls it.
#pragma once

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

class Drafter;
class Executors;
class OutputProcessor;
class Pooler;
class ReqToTokenPool;
class RequestMemory;
class Scheduler;
struct ScheduledStep;
class SlotAllocator;
class StepRunner;
class StepTrace;
class SwaSlots;

// A prompt that leaves no room in the context for a token of an answer.
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
  int pool_slots = 0;                          // without the padding page
  int swa_pool_slots = 0;                      // of the half for layers with a window; 0: there is none
  std::optional<EvictionPolicy> prefix_cache;  // none: requests share nothing
  SpeculativeOptions speculation;              // with the chosen sizes
  SchedulePolicy schedule_policy = SchedulePolicy::kFcfs;
  bool overlap_schedule = false;  // EngineConfig's

  // Longer texts cannot fit the context.
  size_t max_prompt_bytes() const { return static_cast<size_t>(context_length) * max_token_bytes; }
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
  int64_t num_overlapped_steps = 0;  // of them: queued before the tokens of the step before were known
  int64_t num_failed_steps = 0;      // not counted above
  // By all steps: a prompt's first token comes of a step that holds a prompt.
  int64_t num_generated_tokens = 0;
  int64_t num_prefill_tokens = 0;  // computed in steps that hold a prompt, decoding requests' among them
  int64_t num_cascade_steps = 0;   // that attended once to keys which their requests share
  int64_t num_decode_tokens = 0;   // computed in steps of decoding requests alone
  int64_t num_cached_tokens = 0;   // of prompts, which others had computed: Request::num_cached_tokens
  int64_t num_evicted_tokens = 0;  // whose cached K/V made room for others'
  int64_t num_recoveries = 0;      // the prefix cache was dropped, since the books of pages were wrong
  DraftCounts drafts;              // nothing without speculation
  int peak_used_slots = 0;
  double prefill_seconds = 0.0;  // extend and mixed steps
  double decode_seconds = 0.0;
  // Of decode steps: what is not plan, model and sampling, but choosing requests, the step's arrays, tokens
  // to text, and the sink; unless another step was computed meanwhile.
  double decode_host_seconds = 0.0;
};

// One thread owns an engine. Everything that can be known before weights are read fails before weights are
// read.
class Engine {
 public:
  // Throws Error for a model, option or size that can not be served; see load_model, resolve.
  explicit Engine(const EngineConfig& config, const EngineProgress& progress = {});
  ~Engine();

  // Checks a request and encodes its prompt. Throws Error(kInvalidArgument) when the prompt is empty, holds
  // an id outside of the vocabulary, or leaves no room for a token in the context or the pool;
  // Error(kUnsupported) for text without a tokenizer. The engine does not change: safe on any thread, while
  // others step.
  std::unique_ptr<Request> prepare(GenerationRequest request) const;
  // Queues what prepare() made, under the id given: it and the n - 1 after it are nobody else's. Queues
  // nothing when memory runs out, and throws std::bad_alloc.
  void enqueue(std::unique_ptr<Request> request, RequestId id);

  // The same of inputs whose vectors are wanted: a request for each. prepare() throws
  // Error(kInvalidArgument) when there are none, or one is empty, too long for a step, or holds an id outside
  // of the vocabulary; Error(kUnsupported) unless the engine pools.
  std::vector<std::unique_ptr<Request>> prepare(PoolingRequest request) const;
  void enqueue(std::vector<std::unique_ptr<Request>> requests, RequestId id);

  // Prepares and queues, under the next id. Throws as prepare(), changing nothing.
  RequestId submit(GenerationRequest request);
  RequestId submit(PoolingRequest request);
  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params);
  RequestId submit(std::string_view prompt, const SamplingParams& params);

  // One step: admit, allocate, batch, plan, run, sample. Calls `sink` once per request that got a token or
  // ended. Returns false when there was nothing to do.
  //
  // Where steps overlap (EngineConfig::overlap_schedule), the next one may be in flight when this returns;
  // what is done to requests meanwhile is seen to when its tokens come.
  //
  // A step that throws ends the requests that took part, with FinishReason::kError, and no other. When the
  // sink throws, the request that it was called for ends, the others of the step get their tokens, and the
  // first exception is thrown on at the end.
  bool step(const OutputSink& sink);
  // Ends the step that step() left in flight, if there is one, and begins no other.
  void finish_in_flight(const OutputSink& sink);
  bool in_flight() const { return in_flight_ != nullptr; }

  // Ends a request wherever it is and calls `sink` with the last outputs of its completions. False, if there
  // is none of this id: it may have ended already. Not inside of a sink.
  bool abort(RequestId id, const OutputSink& sink);

  // Forgets all prefixes that no running request uses.
  void flush_cache();
  // Throws Error(kInternal) unless every page of the KV pool has one owner. Reads everything: for tests and
  // debug builds.
  void check_memory() const;

  // As Model::check_weights. For when requests have finished: a file that is written to where it lies changes
  // the model under them.
  void check_weights() const;

  // Where the time of steps goes. Started and stopped on any thread.
  StepTrace& trace() { return *trace_; }

  const EngineInfo& info() const { return info_; }
  const EngineStats& stats() const { return stats_; }
  const ModelSpec& model_spec() const { return model_spec_; }
  // Null when the model directory has no tokenizer.json.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  int num_used_slots() const;       // of requests that run, shared ones counted once
  int num_cached_slots() const;     // of the prefix cache, those in use among them
  int num_evictable_slots() const;  // of the prefix cache, those that no request uses
  int num_running() const;          // requests that have pages
  int num_waiting() const;          // requests that have none
  int64_t num_preemptions() const;

 private:
  // Says what the model's files say about ids that the model does not have.
  void warn_about_token_ids(const std::filesystem::path& model_path) const;
  ScheduledStep& schedule();
  // False when there is nothing to do.
  bool begin_step(Clock::time_point start, const OutputSink& sink);
  // Null where the next step can not be chosen yet.
  ScheduledStep* begin_overlapped_step(const ScheduledStep& step);
  void end_step(ScheduledStep& step, const OutputSink& sink);
  void discard_step();
  void advance(const ScheduledStep& step, View<const int32_t> tokens, const OutputSink& sink);
  void fail_step(const ScheduledStep& step, std::string_view message, const OutputSink& sink);
  // Drafts for the step that was scheduled; without drafts if that fails.
  void draft(const ScheduledStep& step);
  // Compares drafts with the model's tokens, one per row of logits.
  void accept_drafts(ScheduledStep& step, View<const int32_t> tokens);
  // Makes the vector of a request whose hidden states are computed, and ends it.
  void pool(Request& request, const TensorView& hidden_states, const OutputSink& sink);
  std::vector<int32_t> stop_token_ids(const SamplingParams& params) const;
  void count(const ScheduledStep& step, double seconds);

  EngineInfo info_;
  EngineStats stats_;
  ModelSpec model_spec_;
  uint64_t random_seed_ = 0;
  std::optional<Tokenizer> tokenizer_;
  std::string gguf_note_;  // of the model directory, where there is no tokenizer
  std::unique_ptr<StepTrace> trace_;
  std::unique_ptr<ReqToTokenPool> rows_;
  std::unique_ptr<SlotAllocator> slots_;
  std::unique_ptr<SwaSlots> window_slots_;  // null: layers with a window keep all tokens
  std::unique_ptr<Executors> executors_;
  std::unique_ptr<RequestMemory> memory_;
  std::unique_ptr<Drafter> drafter_;  // null: no speculation
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<Pooler> pooler_;  // null: the engine generates
  std::unique_ptr<OutputProcessor> outputs_;
  RequestId next_id_ = 1;
  bool overlaps_ = false;
  ScheduledStep* in_flight_ = nullptr;  // launched and not ended
  Clock::time_point step_began_;        // the one in flight, or the tokens before it came
};

}  // namespace attend
#pragma GCC visibility pop
