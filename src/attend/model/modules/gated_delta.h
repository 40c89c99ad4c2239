// GatedDeltaModule: gated delta net as described by a GatedDeltaSpec.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class GatedDeltaModule : public Module {
 public:
  // `state_layer`: ModelSpec::state_layer() of the layer. Throws Error(kUnsupported) for norms after the
  // sublayer.
  GatedDeltaModule(const GatedDeltaSpec& spec, const NormPlacement& norms, int state_layer,
                   const ModelSpec& model, const DecoderNames& names, Device device, DType dtype);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;
  int64_t kept_width() const override { return projected_features(); }
  void replay(ReplayStep& step) const override;

 private:
  // Parts of the projections' output, each [num_tokens, groups, width].
  struct Projections {
    TensorView q, k, v, z, b, a;
  };
  Projections projections(const TensorView& projected) const;
  // Memory of mix(). Without a workspace, every token is a single step.
  struct MixScratch {
    TensorView convolved, workspace;
  };
  // Convolution, recurrence and, unless it is null, the norm. `single_tokens`: every request has at most one.
  void mix(const Projections& parts, const StatePool& states, const kernels::RecurrentBatch& batch,
           const MixScratch& scratch, const TensorView& out, Stream& stream,
           const kernels::GatedNormArgs* norm, bool single_tokens) const;
  // Second projections of z and a, within the columns of `projected`.
  void project_gates(const TensorView& projected, const kernels::OpContext& context) const;
  // Inputs of the decay per key head or, with decays_per_channel, per value head.
  int64_t decay_width() const {
    return spec_.decays_per_channel ? spec_.head_dim_k : spec_.num_v_heads / spec_.num_k_heads;
  }
  // Outputs of the projections of x: q, k, v, z, b and a. With gate_rank, z and a are the factors' features.
  int64_t first_features() const {
    const int64_t gates =
        spec_.gate_rank > 0 ? 2 * int64_t{spec_.gate_rank} : spec_.v_features() + spec_.decay_features();
    return spec_.conv_channels() + gates + spec_.num_v_heads;
  }
  // Same, followed by z and a if they have second projections.
  int64_t projected_features() const {
    const int64_t second = int64_t{spec_.v_features()} + spec_.decay_features();
    return first_features() + (spec_.gate_rank > 0 ? second : 0);
  }

  const GatedDeltaSpec spec_;
  const int state_layer_;
  const int64_t hidden_size_, workspace_width_;
  const DecoderNames& names_;
  kernels::Norm norm_, gated_norm_;
  TensorView conv_, a_log_, dt_bias_;
  std::vector<Linear> in_proj_, second_z_, second_a_, out_proj_;
};

}  // namespace attend
