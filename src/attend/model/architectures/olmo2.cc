// Olmo2ForCausalLM: Llama with norms behind its sublayers in place of those before, and norms of the whole q
// and k.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_olmo2_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kToken;
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = false, .after = true};
}

}  // namespace

constinit const ModelArchitecture kOlmo2{
    .name = "Olmo2ForCausalLM", .read_config = read_olmo2_config, .defaults = {.norm_eps = 1e-5}};

}  // namespace attend
