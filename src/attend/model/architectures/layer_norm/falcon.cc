// FalconForCausalLM: attention and an MLP without a gate, in parallel after one LayerNorm or, in large
// models, one each. q, k and v are one tensor, by key head.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// Only the new decoder architecture reads num_kv_heads.
void read_falcon_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  reject_flag(json, "alibi", "ALiBi");
  const bool is_new = json.boolean_or("new_decoder_architecture", false);
  const bool multi_query = json.boolean_or("multi_query", true);
  const bool parallel = is_new || json.boolean_or("parallel_attn", true);
  const bool two_norms = is_new && json.find_integer("num_ln_in_parallel_attn", 1, 2).value_or(2) == 2;
  ConfigDefaults actual = defaults;
  if (!is_new) {
    actual.keys.num_kv_heads = "";  // no such field
    actual.num_kv_heads = multi_query ? 1 : 0;
  }
  read_plain_layers(json, actual, spec);
  const bool bias = json.boolean_or("bias", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = bias;
    attention.qkv_storage = QkvStorage::kByKvHead;
    std::get<PlainMlpSpec>(layer.mlp).bias = bias;
    layer.norms = {.parallel = parallel, .shared = parallel && !two_norms};
  }
}

}  // namespace

constinit const ModelArchitecture kFalcon{.name = "FalconForCausalLM",
                                          .models = "Falcon 7B, 11B, 40B, 180B",
                                          .read_layers = read_falcon_layers,
                                          .defaults = {.vocab_size = 65024,
                                                       .hidden_size = 4544,
                                                       .num_layers = 32,
                                                       .num_q_heads = 71,
                                                       .max_position_embeddings = 2048,
                                                       .norm_eps = 1e-5,
                                                       .tie_word_embeddings = true,
                                                       .activation = "gelu",
                                                       .keys = {.intermediate_size = "ffn_hidden_size",
                                                                .num_kv_heads = "num_kv_heads",
                                                                .norm_eps = "layer_norm_epsilon",
                                                                .activation = "activation"},
                                                       .norm_kind = kernels::NormKind::kLayer,
                                                       .norm_biases = true},
                                          .names = {.embedding = "transformer.word_embeddings",
                                                    .layers = "transformer.h",
                                                    .final_norm = "transformer.ln_f",
                                                    .parallel_attention_norm = "ln_attn",
                                                    .parallel_mlp_norm = "ln_mlp",
                                                    .qkv_proj = "self_attention.query_key_value",
                                                    .o_proj = "self_attention.dense",
                                                    .up_proj = "mlp.dense_h_to_4h",
                                                    .down_proj = "mlp.dense_4h_to_h"}};

}  // namespace attend
