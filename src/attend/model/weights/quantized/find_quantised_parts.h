// Which parts of slots a checkpoint has quantised, by the names, shapes and dtypes of its tensors.
#pragma once

#include <span>
#include <string_view>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Sets how the parts of linear layers are stored, and the names of their tensors: quantised where the
// checkpoint has a quantised weight's tensors under their names, else plain.
void find_quantised_parts(std::span<WeightSlot> slots, const Quantization& quantization,
                          const CheckpointTensors& files);

// Whether a tensor that no slot asks for scales activations, which are not quantised here.
bool scales_activations(std::string_view name);

}  // namespace attend
