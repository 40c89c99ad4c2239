// GatedMlpModule: the MLP of a GatedMlpSpec.
#pragma once

#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class GatedMlpModule : public Module {
 public:
  GatedMlpModule(const GatedMlpSpec& spec, const NormPlacement& norms, const ModelSpec& model,
                 const DecoderNames& names, Device device);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;

 private:
  const GatedMlpSpec spec_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  const NormPlacement norms_;
  // Writes the gated product over the gates, to save memory: these are the largest activations.
  const bool gates_in_place_;
  kernels::Norm norm_, post_norm_;
  std::vector<Linear> gate_up_, down_;
};

}  // namespace attend
