// OlmoeForCausalLM: norms of the whole q and k as in OLMo 2, norms before sublayers, and experts everywhere.
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_olmoe_config(const JsonNode& json, ModelSpec& spec) {
  if (json.has("clip_qkv"))
    fail(ErrorCode::kUnsupported, json.where("clip_qkv"), ": attend does not clip q, k and v; expected null");
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kToken;
  });
  MoeMlpSpec experts = read_moe_mlp(
      json,
      {.num_experts = 64, .top_k = 8, .intermediate_key = "intermediate_size", .intermediate_size = 2048});
  experts.rule.weights_of = json.boolean_or("norm_topk_prob", false) ? kernels::RouterWeights::kOfChosen
                                                                     : kernels::RouterWeights::kOfAll;
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

}  // namespace

constinit const ModelArchitecture kOlmoe{.name = "OlmoeForCausalLM",
                                         .read_config = read_olmoe_config,
                                         .defaults = {.intermediate_size = 2048, .norm_eps = 1e-5}};

}  // namespace attend
