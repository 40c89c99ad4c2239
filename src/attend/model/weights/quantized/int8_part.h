// Parts in int8: compressed-tensors' int-quantized and pack-quantized, and GPTQ's in 8 bits.
#pragma once

#include "attend/model/weights/quantized/quantised_part.h"

namespace attend {

// As check_quantised_part() and read_quantised_part(). Zero points that are not in the middle, and inputs in
// another order, throw Error(kUnsupported): kernels have them in 4 bits alone. The weight is a view of the
// file where that has a byte an element in rows of outputs.
void check_int8_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                     const CheckpointTensors& files);
QuantisedPart read_int8_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                             const CheckpointTensors& files);

}  // namespace attend
