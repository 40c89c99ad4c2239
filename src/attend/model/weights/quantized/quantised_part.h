// Parts of slots that a checkpoint has quantised: the weight that their tensors make.
#pragma once

#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Holds the part's tensors against the slot; reads none. Throws Error(kCorruptFile) naming tensor, shape and
// what is expected, Error(kUnsupported) for a shape or dtype that attend does not have.
void check_quantised_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                          const CheckpointTensors& files);

struct QuantisedPart {
  Weight weight;
  std::vector<Tensor> tensors;  // keep what the weight views
};
// The weight of a checked part: views of the file where its layout is the kernels', else copies. Throws
// Error(kCorruptFile) naming tensor and element for scales and elements that are no numbers, and for groups
// of inputs that are none.
QuantisedPart read_quantised_part(const WeightSlot& slot, const WeightPart& part,
                                  const Quantization& quantization, const CheckpointTensors& files);

// Whether those codes are a copy, by the part's kind and tensors.
bool copies_codes(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization);

// Its elements in float32.
Tensor elements_of(const Weight& weight);

}  // namespace attend
