// Exaone4ForCausalLM: norms after sublayers, and norms of q and k heads. If some layers are sliding, layers
// with full attention have no RoPE.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

constexpr int kExaone4Window = 4096, kExaone4Pattern = 4;

void read_exaone4_config(const JsonNode& json, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kHead; });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = false, .after = true};
  if (json.mentions("sliding_window") && !json.has("sliding_window")) return;
  // If sliding_window_pattern is a string, the config also has layer_types.
  const int full_every =
      json.has("layer_types")
          ? 1
          : json.find_integer("sliding_window_pattern", 1, 1 << 16).value_or(kExaone4Pattern);
  read_alternating_windows(json, full_every, kExaone4Window, spec);
  for_each_attention(spec, [](AttentionSpec& attention) {
    if (attention.window_left < 0) attention.rope_set = -1;
  });
}

}  // namespace

constinit const ModelArchitecture kExaone4{.name = "Exaone4ForCausalLM",
                                           .read_config = read_exaone4_config,
                                           .defaults = {.num_kv_heads = 32, .norm_eps = 1e-5},
                                           .names = {.mlp_post_norm = "post_feedforward_layernorm"}};

}  // namespace attend
