// Experts in fp8 that share a tensor, input features first: [experts, inputs, outputs].
#pragma once

#include "attend/model/weights/quantized/quantised_part.h"

namespace attend {

// Whether the slot's part is of such experts.
bool shares_fp8_experts(const WeightSlot& slot, const Quantization& quantization);

// The names of the part's tensors, scales first: "<part>_weight_scale" (ModelOpt), "<part>_scale_inv" or
// "<part>_scale", and the part itself. Empty: the files have no such scales.
std::vector<std::string> fp8_expert_tensors(const WeightPart& part, const CheckpointTensors& files);

// As check_quantised_part() and read_quantised_part(). Scales are one of all experts, one of each, one of
// each output, or those of blocks of inputs and outputs. The weight is a copy, with outputs first.
void check_fp8_experts(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const CheckpointTensors& files);
QuantisedPart read_fp8_experts(const WeightSlot& slot, const WeightPart& part,
                               const Quantization& quantization, const CheckpointTensors& files);

}  // namespace attend
