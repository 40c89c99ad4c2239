// Qwen3ForCausalLM: Llama with an RMSNorm of each q and k head before RoPE, and a window for some layers.
#include "attend/model/architecture.h"

namespace attend {
namespace {

void read_qwen3_config(const JsonNode& json, ModelConfig& config) {
  config.qk_norm = true;
  config.attention_bias = json.find_boolean("attention_bias").value_or(false);
  config.attention_output_bias = config.attention_bias;
  read_layer_windows(json, config);
}

}  // namespace

constinit const ModelArchitecture kQwen3{.name = "Qwen3ForCausalLM",
                                         .read_config = read_qwen3_config,
                                         .default_num_kv_heads = 32,
                                         .default_head_dim = 128,
                                         .names = {}};

}  // namespace attend
