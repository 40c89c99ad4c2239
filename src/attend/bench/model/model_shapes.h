// Model shapes for random weights.
#pragma once

#include <string>

#include "attend/model/config/model_spec.h"

namespace attend::bench {

// Returns a well-known shape: "llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b", "qwen3-30b-a3b", "gpt-oss-20b"
// (experts in mxfp4), "qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "nemotron-3-nano", "deepseek-v2-lite",
// "deepseek-v3". Routers spread tokens evenly (RouterRule::spread), since random weights would not. Throws
// Error(kInvalidArgument) with the list of shapes.
ModelSpec shape_model(const std::string& shape);

}  // namespace attend::bench
