// LlamaForCausalLM: the decoder that the others vary. attention_bias is of q, k, v and o alike.
#include "attend/model/architecture.h"

namespace attend {
namespace {

void read_llama_config(const JsonNode& json, ModelConfig& config) {
  config.attention_bias = json.find_boolean("attention_bias").value_or(false);
  config.attention_output_bias = config.attention_bias;
  config.mlp_bias = json.find_boolean("mlp_bias").value_or(false);
}

}  // namespace

constinit const ModelArchitecture kLlama{
    .name = "LlamaForCausalLM", .read_config = read_llama_config, .names = {}};

}  // namespace attend
