// PhiForCausalLM (Phi-1, Phi-1.5, Phi-2): attention and an MLP without a gate in parallel after one
// LayerNorm, partial RoPE, and biases in every layer and the head.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_phi_config(const JsonNode& json, ModelSpec& spec) {
  reject_flag(json, "qk_layernorm", "LayerNorm of q and k");
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = true;
    std::get<PlainMlpSpec>(layer.mlp).bias = true;
    layer.norms = {.parallel = true, .shared = true};
  }
  spec.head_bias = true;
}

}  // namespace

constinit const ModelArchitecture kPhi{.name = "PhiForCausalLM",
                                       .models = "Phi 1, 1.5, 2",
                                       .read_layers = read_plain_layers,
                                       .read_config = read_phi_config,
                                       .defaults = {.vocab_size = 51200,
                                                    .hidden_size = 2048,
                                                    .intermediate_size = 8192,
                                                    .num_layers = 24,
                                                    .num_q_heads = 32,
                                                    .max_position_embeddings = 2048,
                                                    .norm_eps = 1e-5,
                                                    .rope = {.partial_rotary_factor = 0.5},
                                                    .activation = "gelu_new",
                                                    .keys = {.norm_eps = "layer_norm_eps"},
                                                    .norm_kind = kernels::NormKind::kLayer,
                                                    .norm_biases = true},
                                       .names = {.final_norm = "model.final_layernorm",
                                                 .o_proj = "self_attn.dense",
                                                 .up_proj = "mlp.fc1",
                                                 .down_proj = "mlp.fc2"}};

}  // namespace attend
