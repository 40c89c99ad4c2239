// Exaone4ForCausalLM: norms after sublayers, and norms of q and k heads. If some layers are sliding, layers
// with full attention have no RoPE. ExaoneMoeForCausalLM (K-EXAONE): the same attention with norms before
// sublayers, and the experts of DeepSeek-V3.
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

constexpr int kExaone4Window = 4096, kExaone4Pattern = 4;

void read_exaone_attention(const JsonNode& json, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kHead; });
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

void read_exaone4_config(const JsonNode& json, ModelSpec& spec) {
  read_exaone_attention(json, spec);
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = false, .after = true};
}

void read_exaone_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_exaone_attention(json, spec);
  read_corrected_experts(json,
                         {.intermediate_size = 16384,
                          .moe_intermediate_size = 1024,
                          .num_experts = 64,
                          .top_k = 8,
                          .num_shared_experts = 1,
                          .first_dense_layers = 1,
                          .routed_scale = 2.5f,
                          .num_experts_key = "num_experts",
                          .aliases = {.num_shared_experts = "num_shared_experts"}},
                         /*normalized=*/true, spec);
}

}  // namespace

constinit const ModelArchitecture kExaoneMoe{
    .name = "ExaoneMoeForCausalLM",
    .models = "K-EXAONE 236B-A23B",
    .read_config = read_exaone_moe_config,
    .defaults = {.intermediate_size = 16384, .num_kv_heads = 32, .norm_eps = 1e-5},
    .names = {.router_correction = "mlp.e_score_correction_bias"}};

constinit const ModelArchitecture kExaone4{.name = "Exaone4ForCausalLM",
                                           .models = "EXAONE 4.0",
                                           .read_config = read_exaone4_config,
                                           .defaults = {.num_kv_heads = 32, .norm_eps = 1e-5},
                                           .names = {.mlp_post_norm = "post_feedforward_layernorm"}};

}  // namespace attend
