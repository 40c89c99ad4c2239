// InternLM3ForCausalLM: Llama. Published configs name the bias flags qkv_bias and bias.
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

bool read_internlm3_flag(const JsonNode& json, const char* key, const char* alias) {
  return json.boolean_or(json.has(key) ? key : alias, false);
}

void read_internlm3_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = read_internlm3_flag(json, "attention_bias", "qkv_bias");
  const bool mlp_bias = read_internlm3_flag(json, "mlp_bias", "bias");
  // In the publisher's code, qkv_bias applies to q, k and v, and bias to o and the MLP. transformers has one
  // flag for q, k, v and o.
  if (bias != mlp_bias)
    fail(ErrorCode::kUnsupported, json.where("qkv_bias"), " ", bias, " with bias ", mlp_bias,
         ": attend supports only equal values");
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
}

}  // namespace

constinit const ModelArchitecture kInternLm3{
    .name = "InternLM3ForCausalLM",
    .models = "InternLM 3",
    .read_config = read_internlm3_config,
    .defaults = {.num_kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5}};

}  // namespace attend
