// ShortConvModule: gated short convolution as described by a ShortConvSpec.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class ShortConvModule : public Module {
 public:
  // `state_layer`: ModelSpec::state_layer() of the layer.
  // Throws Error(kUnsupported) for norms after the sublayer.
  ShortConvModule(const ShortConvSpec& spec, const NormPlacement& norms, int state_layer,
                  const ModelSpec& model, const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;
  int64_t kept_width() const override { return hidden_size_; }
  void replay(ReplayStep& step) const override;

 private:
  void convolve(const TensorView& x, const StatePool& states, const kernels::RecurrentBatch& batch,
                const TensorView& out, Stream& stream) const;

  const ShortConvSpec spec_;
  const int state_layer_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  kernels::Norm norm_;
  TensorView conv_, conv_bias_;
  std::vector<Linear> in_proj_, out_proj_;
};

}  // namespace attend
