// Qwen2ForCausalLM: Llama with biases of q, k and v, and a window for some layers.
#include "attend/model/architecture.h"

namespace attend {
namespace {

void read_qwen2_config(const JsonNode& json, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qkv_bias = true; });
  read_layer_windows(json, spec);
}

}  // namespace

constinit const ModelArchitecture kQwen2{
    .name = "Qwen2ForCausalLM", .read_config = read_qwen2_config, .defaults = {.num_kv_heads = 32}};

}  // namespace attend
