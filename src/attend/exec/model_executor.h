// ModelExecutor: one model on one rank: modules, KV storage, attention backend, step arrays, CUDA graphs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/checkpoint/weight_prefetcher.h"
#include "attend/exec/executor.h"
#include "attend/exec/executor_config.h"
#include "attend/exec/executor_info.h"
#include "attend/exec/graph_runner.h"
#include "attend/exec/image_encoder.h"
#include "attend/exec/replay_arrays.h"
#include "attend/exec/step_adapters.h"
#include "attend/exec/step_arrays.h"
#include "attend/exec/step_trace.h"
#include "attend/kv/first_page_warmup.h"
#include "attend/kv/storage/cache_storage.h"
#include "attend/model/adapters/adapter_layers.h"
#include "attend/model/model.h"
#include "attend/tensor/cuda.h"

namespace attend {

// Request rows, token slots and window slots belong to the engine. Several executors may share them: a draft
// model is a second executor over the same rows and slots, and each rank has an executor. Each executor has
// its own KV storage and its own copy of the tables on its device.
class ModelExecutor final : public Executor {
 public:
  // Allocates the KV storage and the backend. Reads only the scales of an fp8 KV cache, no weights.
  // `weights`: prefetcher that already reads the files of config.checkpoint, or null. `trace`: records parts
  // of a step, or null. `trace` and the objects that `tables` refers to must outlive the executor. Throws the
  // errors of make_kv_pool, create_backend and read_kv_scales.
  ModelExecutor(ExecutorConfig config, const CacheTables& tables,
                std::unique_ptr<WeightPrefetcher> weights = nullptr, StepTrace* trace = nullptr);
  ~ModelExecutor() override;
  ModelExecutor(const ModelExecutor&) = delete;
  ModelExecutor& operator=(const ModelExecutor&) = delete;

  // Reads the weights and allocates activations, step arrays and results. Call before the first launch().
  // `target`: loaded model with the vocabulary of a draft, which must outlive this executor; null for others.
  // Throws the errors of load_model and Model::share_vocab.
  void load(const LoadProgress& progress = {}, const Model* target = nullptr);

  // Model with the weights of another checkpoint, ready for use_weights().
  struct NewWeights {
    std::shared_ptr<const Checkpoint> checkpoint;
    std::unique_ptr<Model> model;
    std::unique_ptr<VisionTower> tower;  // null: the executor encodes no images
  };
  // CPUs: reads the weights of a checkpoint with the same ModelSpec, next to those in use. Throws the errors
  // of load_model, and Error(kUnsupported) for tensors in another layout or other scales of an fp8 KV cache.
  NewWeights read_weights(std::shared_ptr<const Checkpoint> checkpoint) const;
  // Replaces the weights. `target`: as in load().
  void use_weights(NewWeights weights, const Model* target);
  // Uses the table and head of the target's new weights.
  void share_vocab(const Model& target) { model_->share_vocab(target.vocab()); }
  // Checks names, shapes and dtypes of a checkpoint's tensors as read_weights() does, without reading them.
  void check_weights(const Checkpoint& checkpoint) const;
  // Checkpoint from which load() reads; null: dummy weights.
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return config_.checkpoint; }
  void set_checkpoint(std::shared_ptr<const Checkpoint> checkpoint) {
    config_.checkpoint = std::move(checkpoint);
  }

  // Frees memory and the graphs. launch() requires all parts: load() brings the weights back, and
  // allocate_cache() the KV storage, empty.
  void release(MemoryParts parts);
  void allocate_cache();

  // GPUs: records a graph for every decode size; later decode steps replay it. Call after load().
  void record_graphs(const GraphProgress& progress = {});

  // Decode steps without shared keys are padded to the next decode size, steps with drafts to the next verify
  // size.
  ExecutorOutput launch(const ExecutorBatch& batch) override;
  TensorView compute_logits(int first_token, int num_tokens) override;

  Stream& stream() override { return stream_; }
  const BatchLimits& limits() const override { return config_.backend.limits; }
  const ModelSpec& spec() const override { return config_.model; }
  View<const int32_t> head_tokens() const override { return model_->head_tokens(); }
  KvPool& kv_pool() { return storage_->kv_pool(); }
  CacheBytes page_bytes() const { return storage_->page_bytes(); }
  // Drafts: memory of the hidden states that a step reads, [max_tokens, width], for kernels that write them
  // on the device in place of ExecutorBatch::hidden_rows. `source`: determines the width; both share the
  // memory.
  TensorView hidden_inputs(HiddenSource source) const;
  const Model& model() const { return *model_; }  // after load()
  // Null unless ExecutorConfig::encodes_images. Its work is queued on stream().
  ImageEncoder* image_encoder() { return images_ ? &*images_ : nullptr; }
  int num_kv_layers() const { return static_cast<int>(config_.backend.model.layers.size()); }
  // Batch sizes that decode steps are padded to, in ascending order.
  const std::vector<int>& decode_sizes() const { return config_.decode_sizes; }
  // Sets has_kv_scales; after load() also the bytes of the weights, after record_graphs() also the graphs.
  void complete(ExecutorInfo& info) const;

 private:
  // Allocates the arrays and results of steps.
  void allocate_step();
  // Throws unless adapters apply to the model as to the first one.
  void check_adapter_layers(const Model& model, const Checkpoint* checkpoint) const;
  // Throws unless the fp8 KV cache has the scales of these tensors.
  void check_kv_scales(const CheckpointTensors& tensors) const;
  // Computes logits and hidden states from the step's arrays: kernel launches only. Graphs record this.
  void queue_model(bool hidden_states, HiddenSource source);
  void queue_late_token_ids(const ExecutorBatch& batch);
  void queue_hidden_rows(const ExecutorBatch& batch);
  // Graphs of a draft head: decode steps follow its own predictions, steps with more tokens per request read
  // the target's states (draft extend).
  static HiddenSource graph_source(const StepSize& size);
  // Size that a step is padded to.
  StepSize padded_size(const ExecutorBatch& batch) const;
  // Steps recurrent states through the accepted tokens of the last launch.
  void queue_replay(const VerifiedStates& verified);

  ExecutorConfig config_;
  CacheTables tables_;
  StepTrace* trace_;
  std::unique_ptr<WeightPrefetcher> weights_;  // until load()
  std::vector<KvScales> kv_scales_;            // of the files, for an fp8 KV cache
  std::optional<CacheStorage> storage_;
  std::optional<FirstPageWarmup> first_pages_;  // until load()
  std::unique_ptr<AttentionBackend> attention_;
  std::unique_ptr<Model> model_;
  std::optional<AdapterLayers> adapter_layers_;  // of the first model
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
  std::optional<StepArrays> arrays_;
  std::optional<ReplayArrays> replay_arrays_;  // engines with speculation and recurrent states
  int num_verified_tokens_ = 0;                // of the last launch
  std::optional<ImageEncoder> images_;         // executors that encode images
  View<const EmbeddingRows> image_rows_;       // of the step
  std::optional<StepAdapters> step_adapters_;  // after load()
  kernels::AdapterBatch adapters_;             // of the step
  GraphRunner graphs_;
  Tensor logits_;         // f32 [max_logit_rows, vocab_size]
  Tensor hidden_states_;  // [max_tokens, hidden_width()]; empty unless batches may request hidden states
  Tensor hidden_inputs_;  // [max_tokens * hidden_input_width()]; drafts
  Tensor
      token_indices_;  // int32 [max_tokens] on the device: 0, 1, ...; allocated by the first compute_logits()
};

}  // namespace attend
