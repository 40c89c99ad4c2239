// The module of each alternative of a layer's spec.
#pragma once

#include <memory>

#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

std::unique_ptr<Module> make_mixer(const LayerSpec& layer, int layer_id, const ModelSpec& model,
                                   const DecoderNames& names);
std::unique_ptr<Module> make_mlp(const LayerSpec& layer, const ModelSpec& model, const DecoderNames& names,
                                 Device device);

}  // namespace attend
