// AttentionMamba2Module: an attention and a Mamba-2 mixer of the same input, as described by an
// AttentionMamba2Spec.
#pragma once

#include "attend/model/config/model_spec.h"
#include "attend/model/modules/attention.h"
#include "attend/model/modules/mamba2.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class AttentionMamba2Module : public Module {
 public:
  // Throws the errors of both modules.
  AttentionMamba2Module(const AttentionMamba2Spec& spec, const NormPlacement& norms,
                        const LayerIndices& indices, const ModelSpec& model, const DecoderNames& names)
      : attention_(spec.attention, norms, indices.cache, model, names),
        mamba_(spec.mamba, norms, indices.state, model, names) {}

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override;
  bool takes_adapters() const override { return true; }
  // Both modules have the same norm, with different factors.
  const kernels::Norm& input_norm() const override { return mamba_.input_norm(); }
  void forward(ModuleStep& step) const override;
  int64_t kept_width() const override { return mamba_.kept_width(); }
  void replay(ReplayStep& step) const override { mamba_.replay(step); }

 private:
  AttentionModule attention_;
  Mamba2Module mamba_;
};

}  // namespace attend
