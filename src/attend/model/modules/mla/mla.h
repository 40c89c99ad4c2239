// MlaModule: multi-head latent attention as described by an MlaSpec.
#pragma once

#include <optional>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/mla/indexer.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class MlaModule : public Module {
 public:
  // Throws Error(kUnsupported) for `norms` with a norm after the sublayer, and for biases without
  // q_lora_rank.
  MlaModule(const MlaSpec& spec, const NormPlacement& norms, int layer_id, const ModelSpec& model,
            const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;

 private:
  int64_t q_head_dim() const { return spec_.nope_dim + spec_.rope_dim; }
  int64_t q_features() const { return spec_.num_heads * q_head_dim(); }
  int64_t row_features() const { return spec_.kv_lora_rank + spec_.rope_dim; }
  // Outputs of the first projection: q or its latent vector, then a cache row.
  int64_t first_features() const {
    return (spec_.q_lora_rank > 0 ? spec_.q_lora_rank : q_features()) + row_features();
  }
  // Views of kv_b per head: [num_heads, nope_dim, kv_lora_rank] and [num_heads, v_dim, kv_lora_rank].
  TensorView key_weight() const;
  TensorView value_weight() const;
  // Returns q_nope W_UK for each head.
  TensorView absorbed_queries(ModuleStep& step, const TensorView& q) const;
  // `input`: queries and selected keys. Sets its output.
  void attend_absorbed(ModuleStep& step, AttentionInput input, const TensorView& out) const;

  const MlaSpec spec_;
  const AttentionLayer layer_, expanded_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  kernels::Norm norm_, q_norm_, latent_norm_;
  std::vector<Linear> first_, q_b_, kv_b_, o_;
  std::optional<Indexer> indexer_;  // absent also if another layer's indexer selects keys
};

}  // namespace attend
