// SmallModel: sequences of random q, k and v that grow step by step through a backend and real pools, and the
// reference's results for whole sequences.
#pragma once

#include <memory>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/kv/allocator.h"
#include "attend/kv/req_to_token_pool.h"
#include "tests/backends/backend_case.h"

namespace attend::conformance {

// Pool with a separate pool per layer. With `halves`, window layers are in a separate half with other page
// ids.
class PerLayerPool : public KvPool {
 public:
  PerLayerPool(const std::vector<AttentionLayer>& layers, int page_size, int num_pages, bool halves);
  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  size_t bytes_per_token() const override;

 private:
  std::vector<MhaKvPool> pools_;
  std::vector<bool> mapped_;
  std::vector<int32_t> slot_map_;
};

inline AttentionLayer small_layer(int layer_id) {
  return {.layer_id = layer_id,
          .num_q_heads = 4,
          .num_kv_heads = 2,
          .head_dim_qk = 32,
          .head_dim_v = 32,
          .scale = 0.2f};
}

class SmallModel {
 public:
  // `lengths` are the final lengths of the sequences.
  SmallModel(std::vector<AttentionLayer> layers, std::vector<int> lengths, int page_size,
             bool halves = false);
  SmallModel(const SmallModel&) = delete;

  BackendConfig config(bool deterministic = false) const;
  BackendContext context() const {
    return {.config = config(), .request_table = requests_.table(), .pool = *pool_};
  }
  std::unique_ptr<AttentionBackend> create(std::string_view backend) const;

  // Prepares a step in which sequence i grows by num_new[i] tokens; 0: not in the step. Allocates slots and
  // writes request rows.
  const StepArrays& prepare(ForwardMode mode, const std::vector<int>& num_new);
  // Runs the prepared step through every layer.
  void run(AttentionBackend& backend);
  void step(AttentionBackend& backend, ForwardMode mode, const std::vector<int>& num_new) {
    prepare(mode, num_new);
    run(backend);
  }

  const StepArrays& arrays() const { return step_; }
  LayerInput input(size_t layer_idx) const;
  const std::vector<AttentionLayer>& layers() const { return model_.layers; }

  // Reports every sequence and layer with outputs that differ from the reference.
  void expect_reference_results() const;

 private:
  struct Tokens {  // of one layer: [num_tokens, heads, dim]
    Tensor q, k, v, out;
  };
  Tokens make_tokens(const AttentionLayer& layer, int64_t num_tokens, uint64_t seed) const;
  // Copies rows between a sequence and the tokens of the step.
  void gather(size_t layer_idx);
  void scatter(size_t layer_idx);

  ModelGeometry model_;
  std::vector<int> lengths_, done_, before_;
  std::unique_ptr<KvPool> pool_;
  ReqToTokenPool requests_;
  std::unique_ptr<SlotAllocator> allocator_;
  std::vector<RequestRow> rows_;
  std::vector<std::vector<Tokens>> sequences_;  // [layer][sequence]
  std::vector<Tokens> batch_;                   // [layer]
  StepArrays step_;
};

}  // namespace attend::conformance
