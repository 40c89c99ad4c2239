// Architectures of the OLMo models.
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {

// Olmo2ForCausalLM: Llama with norms after sublayers instead of before, and norms over all heads of q and k.
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

// Olmo3ForCausalLM: OLMo 2 with a window in three of four layers. RoPE scaling does not apply to these
// layers.
namespace {

// Indices into spec.ropes.
constexpr int kOlmo3Full = 0, kOlmo3Sliding = 1;
constexpr int kOlmo3Window = 4096, kOlmo3FullEvery = 4;
constexpr double kOlmo3Theta = 500000.0;

void read_olmo3_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  read_alternating_windows(json, kOlmo3FullEvery, kOlmo3Window, spec);
  const double theta = json.find_positive("rope_theta").value_or(kOlmo3Theta);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  const LayerRopes ropes =
      read_layer_ropes(json, head_dim, spec.max_position_embeddings, {.theta = theta}, {.theta = theta});
  spec.ropes = {ropes.full, ropes.sliding};
}

void read_olmo3_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kToken;
    attention.rope_set = attention.window_left >= 0 ? kOlmo3Sliding : kOlmo3Full;
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = false, .after = true};
}

}  // namespace

constinit const ModelArchitecture kOlmo3{.name = "Olmo3ForCausalLM",
                                         .read_layers = read_olmo3_layers,
                                         .read_config = read_olmo3_config,
                                         .defaults = {.norm_eps = 1e-5}};

// OlmoeForCausalLM: norms over all heads of q and k as in OLMo 2, norms before sublayers, and experts in
// every layer.
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
  experts.rule.weights = json.boolean_or("norm_topk_prob", false) ? kernels::RouterWeights::kChosenExperts
                                                                  : kernels::RouterWeights::kAllExperts;
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

}  // namespace

constinit const ModelArchitecture kOlmoe{.name = "OlmoeForCausalLM",
                                         .read_config = read_olmoe_config,
                                         .defaults = {.intermediate_size = 2048, .norm_eps = 1e-5}};

}  // namespace attend
