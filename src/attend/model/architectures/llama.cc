// LlamaForCausalLM: the decoder that the others vary. attention_bias is of q, k, v and o alike.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_llama_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.find_boolean("attention_bias").value_or(false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  const bool mlp_bias = json.find_boolean("mlp_bias").value_or(false);
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
}

}  // namespace

constinit const ModelArchitecture kLlama{.name = "LlamaForCausalLM", .read_config = read_llama_config};

}  // namespace attend
