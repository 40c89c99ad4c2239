// OPTForCausalLM: GPT-2 with ReLU and separate projections. Learned positions begin at row 2.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_opt_config(const JsonNode& json, ModelSpec& spec) {
  for (const char* key : {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"})
    if (!json.boolean_or(key, true)) json.at(key).unsupported("false: attend supports true");
  reject_flag(json, "_remove_final_layer_norm", "OPT without a final norm");
  if (const int size = json.find_integer("word_embed_proj_dim", 1, 1 << 30).value_or(spec.hidden_size);
      size != spec.hidden_size)
    json.at("word_embed_proj_dim")
        .unsupported(size, ": attend supports embeddings of hidden_size, ", spec.hidden_size);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = true;
    attention.rope_set = -1;
    std::get<PlainMlpSpec>(layer.mlp).bias = true;
  }
  constexpr int kFirstRow = 2;  // the position table has two unused rows
  spec.learned_positions = {
      .num_rows = spec.max_position_embeddings + kFirstRow, .first_row = kFirstRow, .norm = false};
}

constexpr WeightPrefix kSamePrefix[] = {{"model.", "model."}}, kBarePrefix[] = {{"model.", ""}};
constexpr WeightPrefixes kOptPrefixes[] = {kSamePrefix, kBarePrefix};

}  // namespace

constinit const ModelArchitecture kOpt{.name = "OPTForCausalLM",
                                       .models = "OPT",
                                       .read_layers = make_plain_layers,
                                       .read_config = read_opt_config,
                                       .defaults = {.vocab_size = 50272,
                                                    .hidden_size = 768,
                                                    .intermediate_size = 3072,
                                                    .num_layers = 12,
                                                    .num_q_heads = 12,
                                                    .max_position_embeddings = 2048,
                                                    .norm_eps = 1e-5,
                                                    .tie_word_embeddings = true,
                                                    .activation = "relu",
                                                    .keys = {.intermediate_size = "ffn_dim",
                                                             .norm_eps = "layer_norm_eps",
                                                             .activation = "activation_function"},
                                                    .norm_kind = kernels::NormKind::kLayer,
                                                    .norm_biases = true},
                                       .names = {.embedding = "model.decoder.embed_tokens",
                                                 .positions = "model.decoder.embed_positions",
                                                 .layers = "model.decoder.layers",
                                                 .final_norm = "model.decoder.final_layer_norm",
                                                 .attention_norm = "self_attn_layer_norm",
                                                 .o_proj = "self_attn.out_proj",
                                                 .mlp_norm = "final_layer_norm",
                                                 .up_proj = "fc1",
                                                 .down_proj = "fc2"},
                                       .prefixes = kOptPrefixes};

}  // namespace attend
