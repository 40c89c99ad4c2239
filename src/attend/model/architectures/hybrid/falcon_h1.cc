// FalconH1ForCausalLM: each layer has attention and Mamba-2 of the same input, and factors of activations.
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/architectures/hybrid/mamba2.h"

namespace attend {
namespace {

float read_falcon_factor(const JsonNode& json, const char* key) {
  return static_cast<float>(read_activation_factor(json, key));
}

// Reads an array of `count` factors; if it is absent, they are 1.
std::vector<float> read_falcon_factors(const JsonNode& json, const char* key, size_t count) {
  std::vector<float> factors(count, 1.0f);
  const auto array = json.find(key);
  if (!array) return factors;
  if (!array->value().is_array() || array->value().size() != count)
    array->reject("an array of " + std::to_string(count) + " numbers above 0");
  for (size_t i = 0; i < count; ++i) factors[i] = static_cast<float>(array->at(i).positive());
  return factors;
}

// Factors apply before the output projections, so they would not apply to biases.
void reject_bias(const JsonNode& json, const char* bias_key, bool bias, const char* factor_key,
                 float factor) {
  if (bias && factor != 1.0f)
    fail(ErrorCode::kUnsupported, json.where(bias_key), " true with ", factor_key, " ", factor,
         ": attend supports a bias only with a factor of 1");
}

Mamba2Spec read_falcon_mamba(const JsonNode& json, const ModelSpec& spec) {
  const bool by_expansion = json.mentions("mamba_d_ssm") && !json.has("mamba_d_ssm");
  Mamba2Spec mamba =
      by_expansion ? read_mamba2(json, spec)
                   : read_mamba2(json, Mamba2Fields(), spec.norm_eps,
                                 json.find_integer("mamba_d_ssm", 1, 1 << 24).value_or(1024), "mamba_d_ssm");
  mamba.out_bias = json.boolean_or("projectors_bias", false);
  mamba.input_scale = read_falcon_factor(json, "ssm_in_multiplier");
  mamba.output_scale = read_falcon_factor(json, "ssm_out_multiplier");
  reject_bias(json, "projectors_bias", mamba.out_bias, "ssm_out_multiplier", mamba.output_scale);
  const std::vector<float> scales = read_falcon_factors(json, "ssm_multipliers", mamba.scales.size());
  for (size_t i = 0; i < scales.size(); ++i) mamba.scales[i] = scales[i];
  const bool norm_first = json.boolean_or("mamba_norm_before_gate", true);
  if (!json.boolean_or("mamba_rms_norm", false))
    mamba.gate_order = kernels::GateOrder::kGateOnly;
  else if (norm_first)
    mamba.gate_order = kernels::GateOrder::kNormFirst;
  return mamba;
}

void read_falcon_h1_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  const std::vector<float> mlp_factors = read_falcon_factors(json, "mlp_multipliers", 2);
  reject_bias(json, "mlp_bias", mlp_bias, "mlp_multipliers[1]", mlp_factors[1]);
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) {
    mlp.bias = mlp_bias;
    mlp.gate_scale = mlp_factors[0];
    mlp.up_scale = mlp_factors[1];
  });
  auto attention = std::get<AttentionSpec>(spec.layers.front().mixer);
  attention.qkv_bias = attention.output_bias = bias;
  attention.scale *= read_falcon_factor(json, "key_multiplier");
  attention.input_scale = read_falcon_factor(json, "attention_in_multiplier");
  attention.output_scale = read_falcon_factor(json, "attention_out_multiplier");
  reject_bias(json, "attention_bias", bias, "attention_out_multiplier", attention.output_scale);
  const AttentionMamba2Spec both{.attention = attention, .mamba = read_falcon_mamba(json, spec)};
  for (LayerSpec& layer : spec.layers) layer.mixer = both;
  spec.embedding_scale = read_falcon_factor(json, "embedding_multiplier");
  spec.final_logit_scale = read_falcon_factor(json, "lm_head_multiplier");
}

}  // namespace

constinit const ModelArchitecture kFalconH1{.name = "FalconH1ForCausalLM",
                                            .models = "Falcon-H1 0.5B to 34B",
                                            .read_config = read_falcon_h1_config,
                                            .defaults = {.vocab_size = 128000,
                                                         .hidden_size = 4096,
                                                         .intermediate_size = 14336,
                                                         .num_layers = 32,
                                                         .num_q_heads = 32,
                                                         .num_kv_heads = 8,
                                                         .max_position_embeddings = 8192,
                                                         .norm_eps = 1e-5},
                                            .names = kBambaNames};

}  // namespace attend
