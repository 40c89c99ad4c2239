// MoeMlpModule: the mixture of experts of a MoeMlpSpec.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class MoeMlpModule : public Module {
 public:
  // Throws Error(kUnsupported) for `norms` with a norm after the sublayer.
  MoeMlpModule(const MoeMlpSpec& spec, const NormPlacement& norms, const ModelSpec& model,
               const DecoderNames& names, std::string_view norm_name);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override { compute(step, {}); }
  // Same with the sum of the experts in `out` instead of the residual stream. [num_tokens, hidden_size].
  void compute(ModuleStep& step, const TensorView& out) const;

 private:
  const MoeMlpSpec spec_;
  const kernels::MoeShape shape_;  // of the routed experts
  const int64_t hidden_size_;
  const DecoderNames& names_;
  const std::string_view norm_name_;
  const NormPlacement norms_;
  kernels::Norm norm_, router_norm_;
  TensorView correction_, expert_scales_;
  std::vector<Linear> router_, gate_up_, down_, shared_gate_up_, shared_down_, shared_gate_, latent_in_,
      latent_out_;
};

}  // namespace attend
