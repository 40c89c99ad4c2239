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
               const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;

 private:
  const MoeMlpSpec spec_;
  const kernels::MoeShape shape_;  // of the routed experts
  const int64_t hidden_size_;
  const DecoderNames& names_;
  const NormPlacement norms_;
  kernels::Norm norm_;
  TensorView correction_;
  std::vector<Linear> router_, gate_up_, down_, shared_gate_up_, shared_down_, shared_gate_, latent_in_,
      latent_out_;
};

}  // namespace attend
