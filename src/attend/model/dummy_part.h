// Random weights of a quantised format, for benches.
#pragma once

#include <span>

#include "attend/model/quantised_part.h"

namespace attend {

// Sets the storage of the parts of linear layers that the format fits: all but those whose inputs its groups
// do not divide.
void quantise_dummy_parts(std::span<WeightSlot> slots, const Quantization& quantization);

// Random codes with scales that keep products near those of other dummy weights, in host memory. Throws
// Error(kOutOfMemory) with the bytes wanted.
QuantisedPart make_dummy_part(const WeightSlot& slot, const WeightPart& part,
                              const Quantization& quantization);

// "fp8", "fp8-block", "int4" or "mxfp4", as most checkpoints have them. Throws Error(kInvalidArgument) with
// this list.
Quantization dummy_quantization(std::string_view name);

}  // namespace attend
