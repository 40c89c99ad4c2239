// Loads the encoder of images of a model.
#pragma once

#include <memory>
#include <optional>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/multimodal/vision_tower.h"

namespace attend {

// Returns the encoder of spec.vision with the weights of the files; `files` is null: with random weights.
// Throws the errors of map_weights() and upload_weights() for tensors that do not match config.json.
std::unique_ptr<VisionTower> load_vision_tower(std::shared_ptr<const CheckpointTensors> files,
                                               const ModelSpec& spec, const ModelPlacement& placement);

// Upper bound of the bytes of the encoder's weights on a GPU, as placement.dtype.
size_t vision_device_bytes(const CheckpointTensors* files, const ModelSpec& spec,
                           const ModelPlacement& placement);

// Prefixes of the encoder's tensors in the files; none: the files or the model have no encoder.
std::optional<VisionPrefix> vision_prefix(const CheckpointTensors& files, const ModelSpec& spec);

}  // namespace attend
