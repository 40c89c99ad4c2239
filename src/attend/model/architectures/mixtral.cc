// MixtralForCausalLM: Mistral whose every MLP is a mixture of experts. All layers slide when there is a
// sliding_window, which is null or absent in what is published.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_mixtral_config(const JsonNode& json, ModelSpec& spec) {
  const auto window = json.find_integer("sliding_window", 1, 1 << 30);
  if (window) set_windows(spec, std::vector<bool>(spec.layers.size(), true), *window);
  const MoeMlpSpec mlp = read_moe_mlp(
      json,
      {.num_experts = 8, .top_k = 2, .intermediate_key = "intermediate_size", .intermediate_size = 14336});
  for (LayerSpec& layer : spec.layers) layer.mlp = mlp;
}

}  // namespace

constinit const ModelArchitecture kMixtral{
    .name = "MixtralForCausalLM",
    .read_config = read_mixtral_config,
    .defaults = {.intermediate_size = 14336, .num_kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 1e6}},
    .names = {.router = "block_sparse_moe.gate",
              .experts = "block_sparse_moe.experts",
              .expert_gate_proj = "w1",
              .expert_up_proj = "w3",
              .expert_down_proj = "w2"}};

}  // namespace attend
