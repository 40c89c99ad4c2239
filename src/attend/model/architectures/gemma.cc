#include "attend/model/architectures/gemma.h"

#include <cmath>

namespace attend {

void read_gemma_config(const JsonNode& json, ModelSpec& spec) {
  if (json.boolean_or("use_bidirectional_attention", false))
    json.at("use_bidirectional_attention").unsupported("true: attend generates with causal attention only");
  read_gemma_scales(json, spec);
}

void read_gemma_scales(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  const auto scale = 1.0 / std::sqrt(json.find_positive("query_pre_attn_scalar").value_or(256.0));
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.scale = static_cast<float>(scale);
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = true, .after = true};
  spec.zero_centred_norms = true;
  // Rounded as the weights are, which the models were trained with.
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden_size)));
  visit_float_dtype(spec.dtype,
                    [&]<class T>(TypeTag<T>) { spec.embedding_scale = static_cast<float>(T(root)); });
}

float read_logit_cap(const JsonNode& json, const char* key, float missing) {
  if (!json.mentions(key)) return missing;
  return static_cast<float>(json.find_positive(key).value_or(0.0));
}

}  // namespace attend
