// GraniteForCausalLM: Llama with multipliers for embeddings, sublayers, scores and logits.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// Reads a multiplier. Those of published models are between 0.01 and 30.
double read_granite_multiplier(const JsonNode& json, const char* key) {
  constexpr double kLargest = 1 << 16;
  const double multiplier = json.find_positive(key).value_or(1.0);
  if (multiplier > kLargest || multiplier < 1.0 / kLargest)
    json.reject(key, "a number from 1 / 65536 to 65536");
  return multiplier;
}

void read_granite_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  const auto scale = static_cast<float>(read_granite_multiplier(json, "attention_multiplier"));
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.scale = scale;
  });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
  // Each sublayer f computes x += r f(norm(x)). The stream stores x / r, so f is added without a factor.
  // RMSNorm of x / r with epsilon / r^2 equals RMSNorm of x with epsilon, and only norms read the stream.
  const double residual = read_granite_multiplier(json, "residual_multiplier");
  spec.embedding_scale = static_cast<float>(read_granite_multiplier(json, "embedding_multiplier") / residual);
  spec.norm_eps = static_cast<float>(static_cast<double>(spec.norm_eps) / (residual * residual));
  spec.final_logit_scale = static_cast<float>(1.0 / read_granite_multiplier(json, "logits_scaling"));
}

}  // namespace

constinit const ModelArchitecture kGranite{.name = "GraniteForCausalLM", .read_config = read_granite_config};

}  // namespace attend
