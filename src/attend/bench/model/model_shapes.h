// Model shapes for random weights.
#pragma once

#include <string>

#include "attend/model/config/model_spec.h"

namespace attend::bench {

// Returns a well-known shape, such as "llama-3.1-8b" or "gpt-oss-20b" (experts in mxfp4). Routers spread
// tokens evenly (RouterRule::spread), since random weights would not. Throws Error(kInvalidArgument) with the
// list of shapes.
ModelSpec shape_model(const std::string& shape);

// Returns the names of all shapes, separated by commas.
std::string shape_names();

}  // namespace attend::bench
