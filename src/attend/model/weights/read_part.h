// Checks, fetches and reads the parts of slots, for mapped and for uploaded weights.
#pragma once

#include <functional>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Weight of a part in host memory, with the tensors that own or map its memory. The first tensor has the
// elements.
struct LoadedPart {
  Weight weight;
  std::vector<Tensor> tensors;
};

// Checks names, shapes and dtypes of the part's tensors without reading elements, except group indices of a
// rank's part. Returns the number of bytes that fetch_part() fetches. Throws Error(kNotFound) for a missing
// tensor, Error(kCorruptFile) with tensor, shape and expected shape, and Error(kUnsupported) for an
// unsupported dtype or a rank's part that splits a packed word or a group.
uint64_t check_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files);

// Loads the file pages of a checked part into memory. Throws as CheckpointTensors::fetch().
void fetch_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                const CheckpointTensors& files, const std::function<void(size_t bytes)>& fetched);

// Reads the weight of a checked part in its slot's layout: a view of the file if kernels read the stored
// layout, otherwise a copy. Throws Error(kCorruptFile) with tensor and element for numbers that are not
// finite and for invalid group indices, and Error(kUnsupported) for unsupported values.
LoadedPart read_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                     const CheckpointTensors& files);

}  // namespace attend
