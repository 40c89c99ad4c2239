// CohereForCausalLM and Cohere2ForCausalLM (Command R, Command A, Aya): attention and a gated MLP in parallel
// after one LayerNorm without bias, interleaved RoPE and scaled logits. Cohere 2 rotates q and k in layers
// with a window only. Cohere2MoeForCausalLM has experts in most layers, next to a shared one.
#include "attend/base/error.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

void read_cohere_common(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for (LayerSpec& layer : spec.layers) layer.norms = {.parallel = true, .shared = true};
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
  spec.final_logit_scale = static_cast<float>(json.find_positive("logit_scale").value_or(0.0625));
}

void read_cohere_config(const JsonNode& json, ModelSpec& spec) {
  read_cohere_common(json, spec);
  if (!json.boolean_or("use_qk_norm", false)) return;
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kHeadLayerNorm; });
}

void read_cohere2_config(const JsonNode& json, ModelSpec& spec) {
  read_cohere_common(json, spec);
  read_alternating_windows(json, json.find_integer("sliding_window_pattern", 1, 1 << 16).value_or(4), 4096,
                           spec);
  for_each_attention(spec, [](AttentionSpec& attention) {
    if (attention.window_left < 0) attention.rope_set = -1;
  });
}

MoeMlpSpec read_cohere_experts(const JsonNode& json) {
  MoeMlpSpec experts = read_moe_mlp(
      json,
      {.num_experts = 8, .top_k = 2, .intermediate_key = "intermediate_size", .intermediate_size = 22528});
  if (json.find_string("expert_selection_fn").value_or("softmax") != "softmax") {
    expect_string(json, "expert_selection_fn", "sigmoid");
    experts.rule = {.scores = kernels::RouterScores::kSigmoid,
                    .weights = json.boolean_or("norm_topk_prob", true)
                                   ? kernels::RouterWeights::kChosenExperts
                                   : kernels::RouterWeights::kAllExperts};
  }
  const int num_shared = json.find_integer("num_shared_experts", 0, 1 << 6).value_or(0);
  experts.shared_intermediate_size = num_shared * experts.intermediate_size;
  if (num_shared == 0) return experts;
  // The sum of both outputs, or half of it.
  if (json.find_string("shared_expert_combination_strategy").value_or("average") == "average")
    experts.rule.scale = experts.shared_scale = 0.5f;
  else
    expect_string(json, "shared_expert_combination_strategy", "sum");
  return experts;
}

// Windows repeat from the first layer with experts on. Dense layers before it have a pattern of their own; if
// it has no windows, they are rotated nevertheless.
void read_cohere2_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_cohere_common(json, spec);
  if (const auto eps = json.find_positive("rms_norm_eps")) {
    spec.norm_kind = kernels::NormKind::kRms;
    spec.norm_eps = static_cast<float>(*eps);
  }
  const int num_dense = json.find_integer("first_k_dense_replace", 0, 1 << 16).value_or(0);
  const int full_every = json.find_integer("sliding_window_pattern", 1, 1 << 16).value_or(4);
  const int dense_full_every =
      json.find_integer("prefix_dense_sliding_window_pattern", 1, 1 << 16).value_or(1);
  std::vector<bool> slides;
  if (const auto types = json.find("layer_types"))
    slides = read_layer_types(*types, spec.num_layers());
  else
    for (int i = 0; i < spec.num_layers(); ++i)
      slides.push_back(i < num_dense ? (i + 1) % dense_full_every != 0
                                     : (i - num_dense + 1) % full_every != 0);
  read_windows(json, slides, spec);
  const std::vector<bool> is_dense = read_dense_mlps(json, spec.layers.size(), 0);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    if (attention.window_left < 0 && !(is_dense[i] && dense_full_every == 1)) attention.rope_set = -1;
  }
  if (const auto size = json.find_integer("prefix_dense_intermediate_size", 1, 1 << 24))
    for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.intermediate_size = *size; });
  set_sparse_mlps(is_dense, read_cohere_experts(json), spec);
}

constexpr ConfigDefaults cohere_defaults(double theta) {
  return {.vocab_size = 256000,
          .hidden_size = 8192,
          .intermediate_size = 22528,
          .num_layers = 40,
          .num_q_heads = 64,
          .max_position_embeddings = 8192,
          .norm_eps = 1e-5,
          .tie_word_embeddings = true,
          .rope = {.theta = theta},
          .keys = {.norm_eps = "layer_norm_eps"},
          .norm_kind = kernels::NormKind::kLayer};
}

constexpr ConfigDefaults cohere2_moe_defaults() {
  ConfigDefaults defaults = cohere_defaults(10000.0);
  defaults.head_dim = 128;
  return defaults;
}

}  // namespace

constinit const ModelArchitecture kCohere{.name = "CohereForCausalLM",
                                          .models = "Command R, Command R+, Aya",
                                          .read_config = read_cohere_config,
                                          .defaults = cohere_defaults(500000.0)};

constinit const ModelArchitecture kCohere2Moe{.name = "Cohere2MoeForCausalLM",
                                              .models = "Command models with experts",
                                              .read_config = read_cohere2_moe_config,
                                              .defaults = cohere2_moe_defaults()};

constinit const ModelArchitecture kCohere2{.name = "Cohere2ForCausalLM",
                                           .models = "Command R7B, Command A",
                                           .read_config = read_cohere2_config,
                                           .defaults = cohere_defaults(10000.0)};

}  // namespace attend
