#include "attend/model/make_module.h"

#include "attend/model/modules/attention.h"
#include "attend/model/modules/gated_mlp.h"

namespace attend {
namespace {

struct MakeMixer {
  int layer_id;
  const ModelSpec& model;
  const DecoderNames& names;

  std::unique_ptr<Module> operator()(const AttentionSpec& spec) const {
    return std::make_unique<AttentionModule>(spec, layer_id, model, names);
  }
};

struct MakeMlp {
  const ModelSpec& model;
  const DecoderNames& names;

  std::unique_ptr<Module> operator()(const GatedMlpSpec& spec) const {
    return std::make_unique<GatedMlpModule>(spec, model, names);
  }
};

}  // namespace

std::unique_ptr<Module> make_mixer(const MixerSpec& spec, int layer_id, const ModelSpec& model,
                                   const DecoderNames& names) {
  return std::visit(MakeMixer{layer_id, model, names}, spec);
}

std::unique_ptr<Module> make_mlp(const MlpSpec& spec, const ModelSpec& model, const DecoderNames& names) {
  return std::visit(MakeMlp{model, names}, spec);
}

}  // namespace attend
