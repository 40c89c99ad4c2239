// Qwen2ForCausalLM: Llama with biases of q, k and v, and a window for some layers. The text of
// Qwen2VLForConditionalGeneration and Qwen2_5_VLForConditionalGeneration.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_qwen2_config(const JsonNode& json, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qkv_bias = true; });
  read_layer_windows(json, spec);
}

// Older folders call the decoder's weights as Qwen2ForCausalLM does.
constexpr WeightPrefix kQwen2VlPrefixes[] = {{"model.", "model.language_model."}};

constexpr ConfigDefaults qwen2_vl_defaults() {
  return {.num_kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 1e6}, .image_token_id = 151655};
}

}  // namespace

constinit const ModelArchitecture kQwen2{
    .name = "Qwen2ForCausalLM", .read_config = read_qwen2_config, .defaults = {.num_kv_heads = 32}};

constinit const ModelArchitecture kQwen2Vl{.name = "Qwen2VLForConditionalGeneration",
                                           .read_config = read_qwen2_config,
                                           .defaults = qwen2_vl_defaults(),
                                           .text_config = TextConfig::kEither,
                                           .prefixes = kQwen2VlPrefixes};

constinit const ModelArchitecture kQwen25Vl{.name = "Qwen2_5_VLForConditionalGeneration",
                                            .read_config = read_qwen2_config,
                                            .defaults = qwen2_vl_defaults(),
                                            .text_config = TextConfig::kEither,
                                            .prefixes = kQwen2VlPrefixes};

}  // namespace attend
