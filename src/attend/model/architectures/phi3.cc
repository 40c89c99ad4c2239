// Phi3ForCausalLM: Llama with q, k and v in one tensor, and gate and up in another one. All layers may have a
// window, and configs for long contexts use longrope.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_phi3_config(const JsonNode& json, ModelSpec& spec) {
  const auto window = json.find_integer("sliding_window", 1, 1 << 30);
  if (window) set_windows(spec, std::vector<bool>(spec.layers.size(), true), *window);
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qkv_storage = QkvStorage::kFused; });
  for_each_gated_mlp(spec, [](GatedMlpSpec& mlp) { mlp.fused_gate_up = true; });
}

}  // namespace

constinit const ModelArchitecture kPhi3{
    .name = "Phi3ForCausalLM",
    .models = "Phi 3, 3.5 mini, 4, 4 mini",
    .read_config = read_phi3_config,
    .defaults = {.norm_eps = 1e-5, .rope = {.original_max_position_embeddings = 4096}}};

}  // namespace attend
