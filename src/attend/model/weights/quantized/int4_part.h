// Parts in int4: compressed-tensors' pack-quantized, GPTQ and AWQ.
#pragma once

#include "attend/model/weights/quantized/quantised_part.h"

namespace attend {

// As check_quantised_part() and read_quantised_part(). The codes of compressed-tensors whose inputs are in
// order are a view of the file, others a copy.
void check_int4_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                     const CheckpointTensors& files);
QuantisedPart read_int4_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                             const CheckpointTensors& files);

}  // namespace attend
