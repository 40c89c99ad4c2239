// Qwen3ForCausalLM: Llama with an RMSNorm of each q and k head before RoPE, and a window for some layers. The
// text of Qwen3VLForConditionalGeneration.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_qwen3_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.find_boolean("attention_bias").value_or(false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qk_norm = QkNormSpan::kHead;
    attention.qkv_bias = attention.output_bias = bias;
  });
  read_layer_windows(json, spec);
}

// Embedding models are published without their head, and so without the decoder's name.
constexpr WeightPrefix kQwen3Prefixes[] = {{"model.", ""}};
constexpr WeightPrefix kQwen3VlPrefixes[] = {{"model.", "model.language_model."}};

}  // namespace

constinit const ModelArchitecture kQwen3{.name = "Qwen3ForCausalLM",
                                         .read_config = read_qwen3_config,
                                         .defaults = {.num_kv_heads = 32, .head_dim = 128},
                                         .prefixes = kQwen3Prefixes};

constinit const ModelArchitecture kQwen3Vl{
    .name = "Qwen3VLForConditionalGeneration",
    .read_config = read_qwen3_config,
    .defaults = {.num_kv_heads = 32, .head_dim = 128, .rope = {.theta = 500000.0}, .image_token_id = 151655},
    .text_config = TextConfig::kNested,
    .prefixes = kQwen3VlPrefixes};

}  // namespace attend
