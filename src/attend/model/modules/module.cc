#include "attend/model/modules/module.h"

#include "attend/base/error.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/model/modules/attention.h"
#include "attend/model/modules/attention_mamba2.h"
#include "attend/model/modules/gated_delta.h"
#include "attend/model/modules/mamba2.h"
#include "attend/model/modules/mla/mla.h"
#include "attend/model/modules/mlp/gated_mlp.h"
#include "attend/model/modules/mlp/moe_mlp.h"
#include "attend/model/modules/mlp/parallel_moe.h"
#include "attend/model/modules/mlp/plain_mlp.h"
#include "attend/model/modules/short_conv.h"
#include "attend/tensor/arena.h"

namespace attend {

TensorView Scratch::take(DType dtype, int64_t num_rows, int64_t width) {
  const TensorView view = TensorView::contiguous(static_cast<std::byte*>(memory_.data) + used_, dtype,
                                                 {num_rows, width}, memory_.device);
  used_ += static_cast<int64_t>(Arena::padded_bytes(view.num_bytes()));
  ensure(used_ <= static_cast<int64_t>(memory_.num_bytes()),
         "a module allocates more scratch than its scratch_widths()");
  return view;
}

void keep_inputs(const TensorView& rows, const ModuleStep& step) {
  if (step.verified_tokens.empty()) return;
  kernels::gather_rows(rows, step.verified_tokens, step.kept.slice(0, 0, std::ssize(step.verified_tokens)),
                       step.context.stream);
}

kernels::Norm make_norm(bool exists, const ModelSpec& model) {
  return {.eps = model.norm_eps, .kind = exists ? model.norm_kind : kernels::NormKind::kRms};
}

kernels::Norm make_post_norm(bool exists, const ModelSpec& model) {
  kernels::Norm norm = make_norm(exists, model);
  if (model.post_norm_eps > 0.0f) norm.eps = model.post_norm_eps;
  return norm;
}

void require_norm_before(const NormPlacement& norms, const ModelSpec& model) {
  if (!norms.before || norms.after || norms.post_ln)
    fail(ErrorCode::kUnsupported, model.architecture,
         ": attend supports recurrent layers with a norm before them only");
}

namespace {

struct MakeMixer {
  const NormPlacement& norms;
  const LayerIndices& indices;
  const ModelSpec& model;
  const DecoderNames& names;
  Device device;
  DType dtype;

  std::unique_ptr<Module> operator()(const AttentionSpec& spec) const {
    return std::make_unique<AttentionModule>(spec, norms, indices.cache, model, names);
  }
  std::unique_ptr<Module> operator()(const MlaSpec& spec) const {
    return std::make_unique<MlaModule>(spec, norms, indices.cache, model, names);
  }
  std::unique_ptr<Module> operator()(const GatedDeltaSpec& spec) const {
    return std::make_unique<GatedDeltaModule>(spec, norms, indices.state, model, names, device, dtype);
  }
  std::unique_ptr<Module> operator()(const ShortConvSpec& spec) const {
    return std::make_unique<ShortConvModule>(spec, norms, indices.state, model, names);
  }
  std::unique_ptr<Module> operator()(const Mamba2Spec& spec) const {
    return std::make_unique<Mamba2Module>(spec, norms, indices.state, model, names);
  }
  std::unique_ptr<Module> operator()(const AttentionMamba2Spec& spec) const {
    return std::make_unique<AttentionMamba2Module>(spec, norms, indices, model, names);
  }
  std::unique_ptr<Module> operator()(std::monostate) const { return nullptr; }
};

struct MakeMlp {
  const NormPlacement& norms;
  const ModelSpec& model;
  const DecoderNames& names;
  Device device;

  std::unique_ptr<Module> operator()(const GatedMlpSpec& spec) const {
    return std::make_unique<GatedMlpModule>(spec, norms, model, names, device);
  }
  std::unique_ptr<Module> operator()(const MoeMlpSpec& spec) const {
    return std::make_unique<MoeMlpModule>(spec, norms, model, names, names.mlp_norm);
  }
  std::unique_ptr<Module> operator()(const ParallelMoeSpec& spec) const {
    return std::make_unique<ParallelMoeModule>(spec, norms, model, names);
  }
  std::unique_ptr<Module> operator()(const PlainMlpSpec& spec) const {
    return std::make_unique<PlainMlpModule>(spec, norms, model, names);
  }
  std::unique_ptr<Module> operator()(std::monostate) const { return nullptr; }
};

}  // namespace

std::unique_ptr<Module> make_mixer(const LayerSpec& layer, const LayerIndices& indices,
                                   const ModelSpec& model, const DecoderNames& names, Device device,
                                   DType dtype) {
  return std::visit(MakeMixer{layer.norms, indices, model, names, device, dtype}, layer.mixer);
}

std::unique_ptr<Module> make_mlp(const LayerSpec& layer, const ModelSpec& model, const DecoderNames& names,
                                 Device device) {
  return std::visit(MakeMlp{layer.norms, model, names, device}, layer.mlp);
}

}  // namespace attend
