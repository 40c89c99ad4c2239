// ParallelMoeModule: the gated MLP and the experts of a ParallelMoeSpec.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/mlp/moe_mlp.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class ParallelMoeModule : public Module {
 public:
  // Throws Error(kUnsupported) unless `norms` has a norm before and after the sublayer.
  ParallelMoeModule(const ParallelMoeSpec& spec, const NormPlacement& norms, const ModelSpec& model,
                    const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  const kernels::Norm& input_norm() const override { return norm_; }
  void forward(ModuleStep& step) const override;

 private:
  const GatedMlpSpec spec_;
  const int64_t hidden_size_;
  const DecoderNames& names_;
  MoeMlpModule moe_;
  // Norms before and after the dense MLP, after the experts, and of the sum.
  kernels::Norm norm_, dense_post_norm_, moe_post_norm_, post_norm_;
  std::vector<Linear> gate_up_, down_;
};

}  // namespace attend
