// Reads a RopeConfig from config.json. Internal to the model floor.
#pragma once

#include "attend/checkpoint/json.h"
#include "attend/model/config/model_spec.h"

namespace attend {

// Values of absent fields.
struct RopeDefaults {
  double theta = 10000.0;
  RopeType type = RopeType::kDefault;
  double partial_rotary_factor = 1.0;
  // Only for longrope; 0: max_position_embeddings.
  int original_max_position_embeddings = 0;
};

// Reads rope_theta and rope_scaling, or rope_parameters as transformers 5 writes. Throws Error(kCorruptFile)
// with the field, or Error(kUnsupported) with the supported rope types.
RopeConfig read_rope(const JsonNode& config, int head_dim, int max_position_embeddings,
                     const RopeDefaults& defaults = {});

// Head dims and rotary embeddings of a model with different ones for full and for sliding attention layers
// (Gemma 3, Gemma 4).
struct LayerHeadDims {
  int full = 0, sliding = 0;
};
struct LayerRopes {
  RopeConfig full, sliding;
};
// Reads rope_parameters with one object per layer type, or rope_theta and rope_scaling for full attention
// layers and rope_local_base_freq for sliding ones. Throws as read_rope() does.
LayerRopes read_layer_ropes(const JsonNode& config, const LayerHeadDims& head_dims,
                            int max_position_embeddings, const RopeDefaults& full,
                            const RopeDefaults& sliding);

}  // namespace attend
