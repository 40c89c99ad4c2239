// Common parts of models with gated delta nets: Qwen3-Next, Qwen 3.5, OLMo Hybrid.
#pragma once

#include <vector>

#include "attend/model/architectures/architecture.h"

namespace attend {

// Returns for each layer whether it is a gated delta net: by layer_types, or all except each
// full_attention_interval-th.
std::vector<bool> read_linear_layers(const JsonNode& json, size_t num_layers);

// Reads numbers and sizes of heads, and taps of the convolution. `spec`: values of absent fields, and other
// properties. Rejects those that kernels do not support.
GatedDeltaSpec read_gated_delta(const JsonNode& json, GatedDeltaSpec spec);

}  // namespace attend
