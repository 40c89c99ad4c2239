// CohereForCausalLM and Cohere2ForCausalLM (Command R, Command A, Aya): attention and a gated MLP in parallel
// after one LayerNorm without bias, interleaved RoPE and scaled logits. Cohere 2 rotates q and k in layers
// with a window only.
#include "attend/model/architectures/architecture.h"

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
  reject_flag(json, "use_qk_norm", "LayerNorm of q and k");
  read_cohere_common(json, spec);
}

void read_cohere2_config(const JsonNode& json, ModelSpec& spec) {
  read_cohere_common(json, spec);
  read_alternating_windows(json, json.find_integer("sliding_window_pattern", 1, 1 << 16).value_or(4), 4096,
                           spec);
  for_each_attention(spec, [](AttentionSpec& attention) {
    if (attention.window_left < 0) attention.rope_set = -1;
  });
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

}  // namespace

constinit const ModelArchitecture kCohere{
    .name = "CohereForCausalLM", .read_config = read_cohere_config, .defaults = cohere_defaults(500000.0)};

constinit const ModelArchitecture kCohere2{
    .name = "Cohere2ForCausalLM", .read_config = read_cohere2_config, .defaults = cohere_defaults(10000.0)};

}  // namespace attend
