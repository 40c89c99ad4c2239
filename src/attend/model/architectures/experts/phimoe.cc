// PhiMoEForCausalLM (Phi-3.5-MoE): LayerNorms, biases, and two experts per token, weighted by SparseMixer.
// transformers writes another name.
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// short_mscale and long_mscale replace the attention factor of longrope.
void read_phimoe_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  read_dense_layers(json, defaults, spec);
  RopeConfig& rope = spec.ropes.front();
  if (rope.type == RopeType::kDefault) return;
  const JsonNode scaling = json.at(json.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  rope.attention_factor = scaling.positive("short_mscale");
  if (scaling.positive("long_mscale") != rope.attention_factor)
    fail(ErrorCode::kUnsupported, scaling.where("long_mscale"),
         ": attend has one factor for all lengths; expected short_mscale");
}

void read_phimoe_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  spec.head_bias = json.boolean_or("lm_head_bias", false);
  const auto window = json.find_integer("sliding_window", 1, 1 << 30);
  if (window) set_windows(spec, std::vector<bool>(spec.layers.size(), true), *window);
  MoeMlpSpec experts = read_moe_mlp(
      json,
      {.num_experts = 16, .top_k = 2, .intermediate_key = "intermediate_size", .intermediate_size = 6400});
  if (experts.top_k != 2) json.reject("num_experts_per_tok", "2: SparseMixer chooses two experts");
  experts.rule.weights = kernels::RouterWeights::kNearExperts;
  experts.rule.near = static_cast<float>(2.0 * json.find_positive("router_jitter_noise").value_or(0.01));
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

constexpr ModelArchitecture phimoe(std::string_view name) {
  return {.name = name,
          .models = "Phi 3.5 MoE",
          .read_layers = read_phimoe_layers,
          .read_config = read_phimoe_config,
          .defaults = {.intermediate_size = 6400,
                       .num_kv_heads = 8,
                       .norm_eps = 1e-5,
                       .rope = {.theta = 1e6},
                       .norm_kind = kernels::NormKind::kLayer,
                       .norm_biases = true},
          .names = {.router = "block_sparse_moe.gate",
                    .experts = "block_sparse_moe.experts",
                    .expert_gate_proj = "w1",
                    .expert_up_proj = "w3",
                    .expert_down_proj = "w2"}};
}

}  // namespace

constinit const ModelArchitecture kPhiMoe = phimoe("PhiMoEForCausalLM");
constinit const ModelArchitecture kPhiMoeSaved = phimoe("PhimoeForCausalLM");

}  // namespace attend
