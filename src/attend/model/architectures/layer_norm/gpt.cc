// GPT2LMHeadModel, GPTJForCausalLM and GPTNeoXForCausalLM (Pythia): LayerNorm and an MLP without a gate.
#include "attend/model/architectures/architecture.h"

namespace attend {

// GPT-2: learned positions, and linear layers stored as [in_features, out_features].
namespace {

constexpr ConfigKeys kGptKeys{.hidden_size = "n_embd",
                              .intermediate_size = "n_inner",
                              .num_layers = "n_layer",
                              .num_q_heads = "n_head",
                              .max_position_embeddings = "n_positions",
                              .norm_eps = "layer_norm_epsilon",
                              .activation = "activation_function"};

void read_gpt2_config(const JsonNode& json, ModelSpec& spec) {
  reject_flag(json, "scale_attn_by_inverse_layer_idx", "scores divided by the layer's number");
  reject_flag(json, "add_cross_attention", "cross attention in decoders");
  if (!json.boolean_or("scale_attn_weights", true))
    json.at("scale_attn_weights").unsupported("false: attend supports scores divided by sqrt(head_dim) only");
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = true;
    attention.qkv_storage = QkvStorage::kFused;
    attention.rope_set = -1;
    std::get<PlainMlpSpec>(layer.mlp).bias = true;
  }
  spec.learned_positions = {.num_rows = spec.max_position_embeddings, .norm = false};
  spec.transposed_linears = true;
}

constexpr WeightPrefix kGpt2Same[] = {{"transformer.", "transformer."}};
constexpr WeightPrefix kGpt2Bare[] = {{"transformer.", ""}};
constexpr WeightPrefixes kGpt2Prefixes[] = {kGpt2Same, kGpt2Bare};

}  // namespace

constinit const ModelArchitecture kGpt2{.name = "GPT2LMHeadModel",
                                        .models = "GPT-2",
                                        .read_layers = make_plain_layers,
                                        .read_config = read_gpt2_config,
                                        .defaults = {.vocab_size = 50257,
                                                     .hidden_size = 768,
                                                     .num_layers = 12,
                                                     .num_q_heads = 12,
                                                     .max_position_embeddings = 1024,
                                                     .norm_eps = 1e-5,
                                                     .tie_word_embeddings = true,
                                                     .activation = "gelu_new",
                                                     .keys = kGptKeys,
                                                     .norm_kind = kernels::NormKind::kLayer,
                                                     .norm_biases = true},
                                        .names = {.embedding = "transformer.wte",
                                                  .positions = "transformer.wpe",
                                                  .layers = "transformer.h",
                                                  .final_norm = "transformer.ln_f",
                                                  .attention_norm = "ln_1",
                                                  .qkv_proj = "attn.c_attn",
                                                  .o_proj = "attn.c_proj",
                                                  .mlp_norm = "ln_2",
                                                  .up_proj = "mlp.c_fc",
                                                  .down_proj = "mlp.c_proj"},
                                        .prefixes = kGpt2Prefixes};

// GPT-J: attention and MLP in parallel after one norm, interleaved RoPE in the first rotary_dim dimensions.
namespace {

void read_gptj_config(const JsonNode& json, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    std::get<PlainMlpSpec>(layer.mlp).bias = true;
    layer.norms = {.parallel = true, .shared = true};
  }
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  RopeConfig& rope = spec.ropes.front();
  rope.interleaved = true;
  rope.rotary_dim = json.find_integer("rotary_dim", 4, head_dim).value_or(64);
  if (rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0)
    json.reject("rotary_dim", "an even number from 4 to the head dim, " + std::to_string(head_dim));
  spec.head_bias = true;
}

}  // namespace

constinit const ModelArchitecture kGptJ{.name = "GPTJForCausalLM",
                                        .models = "GPT-J",
                                        .read_layers = read_plain_layers,
                                        .read_config = read_gptj_config,
                                        .defaults = {.vocab_size = 50400,
                                                     .hidden_size = 4096,
                                                     .num_layers = 28,
                                                     .num_q_heads = 16,
                                                     .max_position_embeddings = 2048,
                                                     .norm_eps = 1e-5,
                                                     .activation = "gelu_new",
                                                     .keys = kGptKeys,
                                                     .norm_kind = kernels::NormKind::kLayer,
                                                     .norm_biases = true},
                                        .names = {.embedding = "transformer.wte",
                                                  .layers = "transformer.h",
                                                  .final_norm = "transformer.ln_f",
                                                  .attention_norm = "ln_1",
                                                  .q_proj = "attn.q_proj",
                                                  .k_proj = "attn.k_proj",
                                                  .v_proj = "attn.v_proj",
                                                  .o_proj = "attn.out_proj",
                                                  .up_proj = "mlp.fc_in",
                                                  .down_proj = "mlp.fc_out"}};

// GPT-NeoX: attention and MLP in parallel with a norm each, partial RoPE; q, k and v of a head are adjacent.
namespace {

void read_neox_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  ConfigDefaults actual = defaults;
  actual.rope.theta = json.find_positive("rotary_emb_base").value_or(defaults.rope.theta);
  actual.rope.partial_rotary_factor =
      json.find_positive("rotary_pct").value_or(defaults.rope.partial_rotary_factor);
  read_plain_layers(json, actual, spec);
}

void read_neox_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", true);
  const bool parallel = json.boolean_or("use_parallel_residual", true);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = bias;
    attention.qkv_storage = QkvStorage::kByKvHead;
    std::get<PlainMlpSpec>(layer.mlp).bias = true;
    layer.norms.parallel = parallel;
  }
}

}  // namespace

constinit const ModelArchitecture kGptNeoX{.name = "GPTNeoXForCausalLM",
                                           .models = "GPT-NeoX, Pythia",
                                           .read_layers = read_neox_layers,
                                           .read_config = read_neox_config,
                                           .defaults = {.vocab_size = 50432,
                                                        .hidden_size = 6144,
                                                        .intermediate_size = 24576,
                                                        .num_layers = 44,
                                                        .num_q_heads = 64,
                                                        .max_position_embeddings = 2048,
                                                        .norm_eps = 1e-5,
                                                        .rope = {.partial_rotary_factor = 0.25},
                                                        .activation = "gelu",
                                                        .keys = {.norm_eps = "layer_norm_eps"},
                                                        .norm_kind = kernels::NormKind::kLayer,
                                                        .norm_biases = true},
                                           .names = {.embedding = "gpt_neox.embed_in",
                                                     .layers = "gpt_neox.layers",
                                                     .final_norm = "gpt_neox.final_layer_norm",
                                                     .lm_head = "embed_out",
                                                     .qkv_proj = "attention.query_key_value",
                                                     .o_proj = "attention.dense",
                                                     .up_proj = "mlp.dense_h_to_4h",
                                                     .down_proj = "mlp.dense_4h_to_h"}};

}  // namespace attend
