// Mamba2Module: a Mamba-2 mixer as described by a Mamba2Spec.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class Mamba2Module : public Module {
 public:
  // `state_layer`: ModelSpec::state_layer() of the layer. Throws Error(kUnsupported) for norms after the
  // sublayer.
  Mamba2Module(const Mamba2Spec& spec, const NormPlacement& norms, int state_layer, const ModelSpec& model,
               const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;
  int64_t kept_width() const override { return spec_.conv_channels() + int64_t{spec_.num_heads}; }
  void replay(ReplayStep& step) const override;

  // Parts of forward(), between which another module may read the residual stream. mix() returns the input of
  // the output projection, in scratch. add() adds the projection.
  TensorView mix(ModuleStep& step) const;
  void add(const TensorView& mixed, ModuleStep& step) const;

 private:
  int64_t projected_features() const { return spec_.features() + kept_width(); }
  // Convolution and scan of inputs [x | b | c | dt]. `convolved`: scratch.
  void scan(const TensorView& inputs, const StatePool& states, const kernels::RecurrentBatch& batch,
            const TensorView& convolved, const TensorView& out, Stream& stream) const;

  const Mamba2Spec spec_;
  const int state_layer_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  kernels::Norm norm_, gated_norm_;
  TensorView conv_, conv_bias_, a_log_, d_, dt_bias_;
  std::vector<Linear> in_proj_, out_proj_;
};

}  // namespace attend
