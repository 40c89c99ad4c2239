// The formats in which a model's files have its linear layers.
#pragma once

#include <span>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Of all linear layers, experts among them, and of heads and routers that are quantized: what is stored alike
// counts as one, most elements first. Parts without all of their tensors are left out. `files`: those that
// named the parts (loadable_model.h), of which headers and, for act-order, the groups of inputs are read;
// nullptr: weights are made up (quantized_tensor.h), plain ones as `dtype`.
std::vector<StoredFormat> stored_formats(std::span<const WeightSlot> slots, const Quantization& quantization,
                                         const CheckpointTensors* files, DType dtype);

}  // namespace attend
