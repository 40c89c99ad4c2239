// Parts of slots as files have them: checked, fetched and read, for weights that stay mapped and weights that
// are uploaded.
#pragma once

#include <functional>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// The weight of a part in host memory, and what keeps its memory. The first tensor has the elements.
struct LoadedPart {
  Weight weight;
  std::vector<Tensor> tensors;
};

// Checks names, shapes and dtypes of the part's tensors; reads none. Returns the number of bytes that
// fetch_part() fetches. Throws Error(kNotFound) for a missing tensor, Error(kCorruptFile) naming tensor,
// shape and what is expected, Error(kUnsupported) for a dtype that attend does not have, and for a rank's
// part that begins or ends within a packed word or a group.
uint64_t check_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files);

// Reads the pages that a checked part has of its tensors into memory. Throws as CheckpointTensors::fetch().
void fetch_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                const CheckpointTensors& files, const std::function<void(size_t bytes)>& fetched);

// The weight of a checked part as its slot has it: views of the file where its layout is the kernels', else
// copies. Throws Error(kCorruptFile) naming tensor and element for numbers that are not finite, and for
// groups of inputs that are none; Error(kUnsupported) for values that attend does not have.
LoadedPart read_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                     const CheckpointTensors& files);

}  // namespace attend
