// Reads a RopeConfig from config.json. Internal to the model floor.
#pragma once

#include "attend/model/json.h"
#include "attend/model/rope_config.h"

namespace attend {

// From rope_theta and rope_scaling, or from rope_parameters as transformers 5 writes. Throws
// Error(kCorruptFile) naming the field, or Error(kUnsupported) with the rope types that attend has.
RopeConfig read_rope(const JsonNode& config, int head_dim, int max_position_embeddings);

}  // namespace attend
