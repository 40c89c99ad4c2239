// ArceeForCausalLM (AFM): Llama with squared ReLU instead of a gate.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_arcee_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = bias;
    std::get<PlainMlpSpec>(layer.mlp).bias = mlp_bias;
  }
}

}  // namespace

constinit const ModelArchitecture kArcee{.name = "ArceeForCausalLM",
                                         .models = "AFM",
                                         .read_layers = read_plain_layers,
                                         .read_config = read_arcee_config,
                                         .defaults = {.vocab_size = 32000,
                                                      .hidden_size = 2560,
                                                      .intermediate_size = 18432,
                                                      .num_layers = 32,
                                                      .num_q_heads = 32,
                                                      .max_position_embeddings = 4096,
                                                      .norm_eps = 1e-5,
                                                      .activation = "relu2"}};

}  // namespace attend
