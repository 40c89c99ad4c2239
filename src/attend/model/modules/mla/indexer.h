// Indexer of a layer with sparse attention (IndexerSpec): projections, norm and rotation of index queries and
// keys, and the store of the keys. The attention backend selects keys by them.
#pragma once

#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/modules/rope.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class Indexer {
 public:
  // `mla`: the layer, with an indexer of its own.
  Indexer(const MlaSpec& mla, int64_t hidden_size, const DecoderNames& names);

  void add_slots(SlotWriter& slots);
  std::vector<int64_t> scratch_widths() const;

  // Projects index keys and weights of index heads from the residual stream, which is read through `norm`.
  // Stores the keys in the cache, and returns the weights: [num_tokens, num_heads].
  TensorView store_keys(ModuleStep& step, const kernels::Norm& norm, const RopeRows& rope,
                        const TensorView& cache, View<const int32_t> slots) const;
  // Returns rotated index queries: [num_tokens, num_heads, head_dim]. q_latent: normalized.
  TensorView queries(ModuleStep& step, const TensorView& q_latent, const RopeRows& rope) const;

 private:
  void rotate(const TensorView& heads, const RopeRows& rope, Stream& stream) const;

  const IndexerSpec spec_;
  const int64_t hidden_size_, q_lora_rank_, rope_dim_;
  const DecoderNames& names_;
  kernels::Norm k_norm_;
  std::vector<Linear> k_and_weights_, q_;
};

}  // namespace attend
