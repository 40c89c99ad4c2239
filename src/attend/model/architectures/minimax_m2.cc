// MiniMaxM2ForCausalLM: norms over all heads of q and k, partial RoPE, and experts in every layer, with
// sigmoid scores and a correction bias for their choice.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// Published configs have rotary_dim, a number of dimensions, instead of partial_rotary_factor.
void read_minimax_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  RopeDefaults rope = defaults.rope;
  if (const auto rotary_dim = json.find_integer("rotary_dim", 2, head_dim))
    rope.partial_rotary_factor = static_cast<double>(*rotary_dim) / head_dim;
  spec.ropes = {read_rope(json, head_dim, spec.max_position_embeddings, rope)};
}

void read_minimax_config(const JsonNode& json, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kToken; });
  expect_string(json, "scoring_func", "sigmoid");
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 256,
                                           .top_k = 8,
                                           .num_experts_key = "num_local_experts",
                                           .intermediate_key = "intermediate_size",
                                           .intermediate_size = 1536});
  experts.rule.scores = kernels::RouterScores::kSigmoid;
  experts.correction = true;
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

}  // namespace

constinit const ModelArchitecture kMiniMaxM2{
    .name = "MiniMaxM2ForCausalLM",
    .models = "MiniMax M2",
    .read_layers = read_minimax_layers,
    .read_config = read_minimax_config,
    .defaults = {.intermediate_size = 1536, .num_kv_heads = 8, .head_dim = 128, .rope = {.theta = 5000000.0}},
    .predicts_more_tokens = true,
    .names = {.router = "block_sparse_moe.gate",
              .experts = "block_sparse_moe.experts",
              .expert_gate_proj = "w1",
              .expert_up_proj = "w3",
              .expert_down_proj = "w2",
              .router_correction = "block_sparse_moe.e_score_correction_bias"}};

}  // namespace attend
