// GemmaForCausalLM: the first Gemma. Llama with norms around zero, scaled embeddings and GELU.
#include <cmath>

#include "attend/model/architectures/gemma.h"

namespace attend {
namespace {

void read_gemma1_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_config(json, spec);
  // No query_pre_attn_scalar, and norms before sublayers alone.
  for_each_attention(spec, [](AttentionSpec& attention) {
    attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {};
}

constexpr ConfigDefaults gemma1_defaults() {
  ConfigDefaults defaults = kGemmaDefaults;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 24576;
  defaults.num_layers = 28;
  defaults.num_q_heads = 16;
  defaults.num_kv_heads = 16;
  return defaults;
}

}  // namespace

constinit const ModelArchitecture kGemma{
    .name = "GemmaForCausalLM", .read_config = read_gemma1_config, .defaults = gemma1_defaults()};

}  // namespace attend
