// Parts in mxfp4: gpt-oss's, which may be of several experts, and compressed-tensors'.
#pragma once

#include "attend/model/weights/quantized/quantised_part.h"

namespace attend {

// As check_quantised_part() and read_quantised_part(). Codes and scales are views of the file.
void check_mxfp4_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                      const CheckpointTensors& files);
QuantisedPart read_mxfp4_part(const WeightSlot& slot, const WeightPart& part,
                              const Quantization& quantization, const CheckpointTensors& files);

}  // namespace attend
