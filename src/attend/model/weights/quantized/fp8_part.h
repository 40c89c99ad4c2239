// Parts in fp8 of a matrix each, by the names of every publisher.
#pragma once

#include "attend/model/weights/quantized/quantised_part.h"

namespace attend {

// As check_quantised_part() and read_quantised_part(). Scales are one of all, one of each output, or those of
// blocks. The codes are a view of the file.
void check_fp8_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files);
QuantisedPart read_fp8_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                            const CheckpointTensors& files);

}  // namespace attend
