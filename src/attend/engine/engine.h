// Engine: the one step loop. Every command calls it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "attend/engine/engine_config.h"
#include "attend/engine/request.h"
#include "attend/kv/allocator.h"
#include "attend/kv/kv_pool.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/model/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

class Scheduler;
struct ScheduledStep;
class StepRunner;

// What a step gave one request.
struct StepOutput {
  RequestId id;
  int32_t token_id;            // the new token; kernels::kNoToken with FinishReason::kError
  std::string_view text;       // new text; never splits UTF-8, never shows the start of a stop string
  FinishReason finish_reason;  // kNone: goes on
  const Request& request;      // valid during the call
};
using OutputSink = std::function<void(const StepOutput&)>;

// What was resolved from the config: printed at start, served by the API.
struct EngineInfo {
  std::string model;  // architecture
  Device device;
  Hardware hardware;
  Resolution resolution;
  DType dtype = DType::kF32;  // of activations
  DType kv_cache_dtype = DType::kF32;
  bool deterministic = false;  // a token's bits depend on its own request alone
  int context_length = 0;
  BatchLimits limits;
  size_t weight_bytes = 0;
  size_t pool_bytes = 0;
  size_t kv_token_bytes = 0;  // of the K/V of one token, all layers together
  size_t workspace_bytes = 0;
  int pool_slots = 0;            // without the padding page
  std::vector<int> graph_sizes;  // batch sizes that have a CUDA graph
  size_t graph_bytes = 0;
};

struct EngineStats {
  int64_t num_steps = 0;
  // By all steps: a prompt's first token comes of a step that holds a prompt.
  int64_t num_generated_tokens = 0;
  int64_t num_prefill_tokens = 0;  // computed in steps that hold a prompt, decoding requests' among them
  int64_t num_decode_tokens = 0;   // computed in steps of decoding requests alone
  int peak_used_slots = 0;
  double prefill_seconds = 0.0;  // extend and mixed steps
  double decode_seconds = 0.0;
  // Of decode steps: what is not plan, model and sampling, but choosing requests, the step's arrays, tokens
  // to text, and the sink.
  double decode_host_seconds = 0.0;
};

// One thread owns an engine. Everything that can be known before weights are read fails before weights are
// read.
class Engine {
 public:
  // Throws Error for a model, wish or size that can not be served; see load_model, resolve.
  explicit Engine(const EngineConfig& config, const EngineProgress& progress = {});
  ~Engine();

  // Queues a prompt. Throws Error(kInvalidArgument), changing nothing, when it is empty, holds an id outside
  // of the vocabulary, or leaves no room for a token in the context or the pool.
  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params);
  // Text is encoded with the model's tokenizer, special tokens added. Throws Error(kUnsupported) without one.
  RequestId submit(std::string_view prompt, const SamplingParams& params);

  // One step: admit, allocate, batch, plan, run, sample. Calls `sink` once per request that got a token.
  // Returns false when there was nothing to do.
  bool step(const OutputSink& sink);

  // As Model::check_weights. For when requests have finished: a file that is written to where it lies changes
  // the model under them.
  void check_weights() const;

  const EngineInfo& info() const { return info_; }
  const EngineStats& stats() const { return stats_; }
  const ModelSpec& model_spec() const { return model_spec_; }
  // Null when the model directory has no tokenizer.json.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  int num_used_slots() const { return slots_->num_used_slots(); }

 private:
  // Text of one request while it is generated.
  struct TextState;

  // Says what the model's files say about ids that the model does not have.
  void warn_about_token_ids(const std::filesystem::path& model_path) const;
  // Pads decode steps to these batch sizes and, with `record`, replays them from CUDA graphs.
  void prepare_graphs(std::vector<int> sizes, bool record, const EngineProgress& progress);
  void advance(const ScheduledStep& step, View<const int32_t> tokens, const OutputSink& sink);
  void accept_token(Request& request, int32_t token_id, const OutputSink& sink);
  FinishReason finish_reason_after(const Request& request, int32_t token_id) const;
  void count(const ScheduledStep& step, double seconds);

  EngineInfo info_;
  EngineStats stats_;
  ModelSpec model_spec_;
  uint64_t random_seed_ = 0;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ReqToTokenPool> rows_;
  std::unique_ptr<SlotAllocator> slots_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<AttentionBackend> attention_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<StepRunner> runner_;
  std::unordered_map<RequestId, TextState> texts_;
  RequestId next_id_ = 1;
};

}  // namespace attend
#pragma GCC visibility pop
