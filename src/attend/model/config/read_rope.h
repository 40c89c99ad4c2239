// Reads a RopeConfig from config.json. Internal to the model floor.
#pragma once

#include "attend/checkpoint/json.h"
#include "attend/model/config/model_spec.h"

namespace attend {

// What absent fields mean.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  // Of longrope alone; 0: max_position_embeddings
  int original_max_position_embeddings = 0;
};

// From rope_theta and rope_scaling, or from rope_parameters as transformers 5 writes. Throws
// Error(kCorruptFile) naming the field, or Error(kUnsupported) with the rope types that attend has.
RopeConfig read_rope(const JsonNode& config, int head_dim, int max_position_embeddings,
                     const RopeDefaults& defaults = {});

// Rotary embeddings of a model whose layers with a window have others than those without (Gemma 3).
struct LayerRopes {
  RopeConfig full, sliding;
};
// From rope_parameters with an object for either type of layer, or from rope_theta and rope_scaling for
// layers without a window and rope_local_base_freq for the others. Errors as of read_rope().
LayerRopes read_layer_ropes(const JsonNode& config, int head_dim, int max_position_embeddings,
                            const RopeDefaults& full, const RopeDefaults& sliding);

}  // namespace attend
