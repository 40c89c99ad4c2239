// AttentionModule: grouped-query attention as described by an AttentionSpec.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class AttentionModule : public Module {
 public:
  AttentionModule(const AttentionSpec& spec, const NormPlacement& norms, int layer_id, const ModelSpec& model,
                  const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;

 private:
  std::vector<SlotWriter::Part> qkv_parts() const;
  int64_t q_features() const { return int64_t{spec_.num_q_heads} * spec_.head_dim; }
  // Outputs of q_proj per head: q, and its output gate.
  int64_t q_width() const {
    return int64_t{spec_.head_dim} * (spec_.output_gate == OutputGate::kAfterQ ? 2 : 1);
  }
  // False: the layer attends to the K and V of another one.
  bool has_kv() const { return spec_.kv_layer < 0; }
  int64_t k_features() const { return int64_t{spec_.num_kv_heads} * spec_.head_dim; }
  int64_t v_features() const { return int64_t{spec_.num_kv_heads} * spec_.head_dim_v(); }
  int64_t out_features() const { return int64_t{spec_.num_q_heads} * spec_.head_dim_v(); }
  // Columns of q, k and v, which gates of other projections follow.
  int64_t qkv_end() const {
    return spec_.num_q_heads * q_width() + (has_kv() ? k_features() + v_features() : 0);
  }
  // Gates per head of a projection of their own.
  int64_t gate_width() const;
  int64_t qkv_features() const { return qkv_end() + spec_.num_q_heads * gate_width(); }
  // Features of q, k and v, and of the output of attention, with padded heads; 0: heads are not padded.
  int64_t padded_features() const;
  int64_t padded_out_features() const {
    return spec_.pads_heads() ? int64_t{spec_.num_q_heads} * spec_.cached_head_dim_v() : 0;
  }
  // Computes q, and stores K and V. `qkv`: [num_tokens, qkv_features()].
  TensorView project(ModuleStep& step, const TensorView& qkv) const;
  // attended *= function(gates).
  void apply_gates(const TensorView& qkv, const TensorView& attended, Stream& stream) const;

  const AttentionSpec spec_;
  const AttentionLayer layer_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  const NormPlacement norms_;
  kernels::Norm norm_, post_norm_;
  kernels::QkNorm qk_norm_;
  TensorView sinks_;
  std::vector<Linear> qkv_, o_;
};

}  // namespace attend
