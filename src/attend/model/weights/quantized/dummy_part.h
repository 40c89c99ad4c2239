// Random weights of a quantised format, for benches.
#pragma once

#include <span>

#include "attend/model/weights/quantized/quantised_part.h"

namespace attend {

// Sets the storage of the parts of linear layers; routers stay plain, as in checkpoints. Throws
// Error(kUnsupported) with the layer where groups do not divide its inputs, or blocks the outputs of experts
// that share a tensor.
void quantise_dummy_parts(std::span<WeightSlot> slots, const Quantization& quantization);

// Random codes with scales that keep products near those of other dummy weights, in host memory. Throws
// Error(kOutOfMemory) with the bytes wanted.
QuantisedPart make_dummy_part(const WeightSlot& slot, const WeightPart& part,
                              const Quantization& quantization);

// "fp8", "fp8-block", "int8", "int4", "int4-g32" or "mxfp4", as most checkpoints have them; groups of int4
// are 128 inputs, or 32. Throws Error(kInvalidArgument) with this list.
Quantization dummy_quantization(std::string_view name);

}  // namespace attend
