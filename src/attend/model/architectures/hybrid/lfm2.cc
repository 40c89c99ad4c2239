// Lfm2ForCausalLM: gated short convolutions in most layers, attention with norms of heads in the others.
// Lfm2MoeForCausalLM also has experts, in all layers after the first ones.
#include <cmath>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// Returns for each layer whether it is a convolution: by layer_types, or all except full_attn_idxs. Without
// both, all layers have attention.
std::vector<bool> read_conv_layers(const JsonNode& json, size_t num_layers) {
  std::vector<bool> conv(num_layers, false);
  if (const auto types = json.find("layer_types")) {
    const std::string expected =
        "an array of " + std::to_string(num_layers) + " times \"conv\" or \"full_attention\"";
    if (!types->value().is_array() || types->value().size() != num_layers) types->reject(expected);
    for (size_t i = 0; i < num_layers; ++i) {
      const Json& type = types->value()[i];
      conv[i] = is_string(type, "conv");
      if (!conv[i] && !is_string(type, "full_attention")) types->reject(expected);
    }
    return conv;
  }
  const auto full = json.find("full_attn_idxs");
  if (!full) return conv;
  conv.assign(num_layers, true);
  for (size_t i = 0; i < full->array_size(); ++i)
    conv[static_cast<size_t>(full->at(i).integer(0, static_cast<int>(num_layers) - 1))] = false;
  return conv;
}

void read_lfm2_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  read_dense_layers(json, defaults, spec);
  spec.norm_eps = static_cast<float>(json.find_positive("norm_eps").value_or(defaults.norm_eps));
  spec.tie_word_embeddings = json.boolean_or("tie_embedding", spec.tie_word_embeddings);
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kHead; });
  const ShortConvSpec conv{.kernel = json.find_integer("conv_L_cache", 1, 1 << 12).value_or(3),
                           .bias = json.boolean_or("conv_bias", false)};
  if (conv.kernel < 2 || conv.kernel > kernels::kMaxConvKernel)
    fail(ErrorCode::kUnsupported, json.where("conv_L_cache"), " ", conv.kernel, ": attend supports 2 to ",
         kernels::kMaxConvKernel);
  const std::vector<bool> is_conv = read_conv_layers(json, spec.layers.size());
  for (size_t i = 0; i < is_conv.size(); ++i)
    if (is_conv[i]) spec.layers[i].mixer = conv;
}

// The size of the MLP is two thirds of the one in the config, rounded up, unless the config disables this.
void read_lfm2_config(const JsonNode& json, ModelSpec& spec) {
  constexpr int kMaxSize = 1 << 24;
  const auto block = json.find_integer("block_ff_dim", 1, kMaxSize);
  const bool adjusts = json.boolean_or("block_auto_adjust_ff_dim", true);
  const int multiple = json.find_integer("block_multiple_of", 1, 1 << 16).value_or(256);
  const double factor = json.find_positive("block_ffn_dim_multiplier").value_or(1.0);
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) {
    int size = block.value_or(mlp.intermediate_size);
    if (adjusts) {
      const double scaled = std::floor(factor * std::floor(2.0 * size / 3.0));
      if (scaled < 1.0 || scaled > kMaxSize)
        json.reject("block_ffn_dim_multiplier", "a factor with which the MLP has 1 to 16777216 features");
      size = round_up(static_cast<int>(scaled), multiple);
    }
    mlp.intermediate_size = size;
  });
}

void read_lfm2_moe_config(const JsonNode& json, ModelSpec& spec) {
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 32, .top_k = 4, .intermediate_size = 1792});
  experts.correction = json.boolean_or("use_expert_bias", true);
  experts.rule = {.scores = kernels::RouterScores::kSigmoid,
                  .weights = json.boolean_or("norm_topk_prob", true) ? kernels::RouterWeights::kChosenExperts
                                                                     : kernels::RouterWeights::kAllExperts,
                  .scale = static_cast<float>(json.find_positive("routed_scaling_factor").value_or(1.0)),
                  .sum_epsilon = 1e-6f};
  const auto num_dense = static_cast<size_t>(json.find_integer("num_dense_layers", 0, 1 << 16).value_or(2));
  for (size_t i = num_dense; i < spec.layers.size(); ++i) spec.layers[i].mlp = experts;
}

constexpr ConfigDefaults lfm2_defaults(int hidden_size, int intermediate_size) {
  return {.vocab_size = 65536,
          .hidden_size = hidden_size,
          .intermediate_size = intermediate_size,
          .num_layers = 32,
          .num_q_heads = 32,
          .num_kv_heads = 8,
          .max_position_embeddings = 128000,
          .norm_eps = 1e-5,
          .tie_word_embeddings = true,
          .rope = {.theta = 1e6}};
}

constexpr DecoderNames lfm2_names() {
  return {.final_norm = "model.embedding_norm",
          .attention_norm = "operator_norm",
          .o_proj = "self_attn.out_proj",
          .q_norm = "self_attn.q_layernorm",
          .k_norm = "self_attn.k_layernorm",
          .mlp_norm = "ffn_norm",
          .gate_proj = "feed_forward.w1",
          .up_proj = "feed_forward.w3",
          .down_proj = "feed_forward.w2",
          .router = "feed_forward.gate",
          .experts = "feed_forward.experts",
          .expert_gate_proj = "w1",
          .expert_up_proj = "w3",
          .expert_down_proj = "w2",
          .router_correction = "feed_forward.expert_bias",
          .in_proj = "conv.in_proj",
          .conv = "conv.conv",
          .out_proj = "conv.out_proj"};
}

}  // namespace

constinit const ModelArchitecture kLfm2{.name = "Lfm2ForCausalLM",
                                        .models = "LFM2 350M to 2.6B",
                                        .read_layers = read_lfm2_layers,
                                        .read_config = read_lfm2_config,
                                        .defaults = lfm2_defaults(2560, 12288),
                                        .names = lfm2_names()};

constinit const ModelArchitecture kLfm2Moe{.name = "Lfm2MoeForCausalLM",
                                           .models = "LFM2-8B-A1B",
                                           .read_layers = read_lfm2_layers,
                                           .read_config = read_lfm2_moe_config,
                                           .defaults = lfm2_defaults(2048, 7168),
                                           .names = lfm2_names()};

}  // namespace attend
