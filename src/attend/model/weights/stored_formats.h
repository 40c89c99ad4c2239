// Stored formats of a model's linear layers.
#pragma once

#include <span>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Lists the formats of all linear layers, including experts and quantized heads and routers. Each format is
// one entry; the format with the most elements is first. Parts with missing tensors are skipped. `files`: the
// checkpoint of the parts (loadable_model.h); only headers and, for act-order, the group indices are read.
// With nullptr, weights are random (quantized_tensor.h), and those without quantization have `dtype`.
std::vector<StoredFormat> stored_formats(std::span<const WeightSlot> slots, const Quantization& quantization,
                                         const CheckpointTensors* files, DType dtype);

}  // namespace attend
