// Model shapes for random weights.
#pragma once

#include <string>

#include "attend/engine/speculation/speculative_options.h"
#include "attend/model/config/model_spec.h"

namespace attend::bench {

// Returns a well-known shape, such as "llama-3.1-8b" or "gpt-oss-20b" (experts in mxfp4). Routers spread
// tokens evenly (RouterRule::spread), since random weights would not. Throws Error(kInvalidArgument) with the
// list of shapes.
ModelSpec shape_model(const std::string& shape);

// Returns a draft head for a target: of EAGLE and EAGLE-3 with the attention heads and the MLP size that
// published heads for such a target have, EAGLE-3 with a vocabulary of at most 32000 tokens; of kNextn the
// layer for multi-token prediction of `shape`, which the target has. Throws Error(kUnsupported) for a shape
// without such a layer, Error(kInvalidArgument) for an algorithm without a draft head.
ModelSpec shape_draft(SpeculativeAlgorithm algorithm, const ModelSpec& target, const std::string& shape);

// Returns the names of all shapes, separated by commas.
std::string shape_names();

}  // namespace attend::bench
