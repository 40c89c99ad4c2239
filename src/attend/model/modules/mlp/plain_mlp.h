// PlainMlpModule: the MLP without a gate of a PlainMlpSpec.
#pragma once

#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class PlainMlpModule : public Module {
 public:
  PlainMlpModule(const PlainMlpSpec& spec, const NormPlacement& norms, const ModelSpec& model,
                 const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;

 private:
  const PlainMlpSpec spec_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  const NormPlacement norms_;
  kernels::Norm norm_, post_norm_;
  kernels::XieluAlphas alphas_;
  std::vector<Linear> up_, down_;
};

}  // namespace attend
