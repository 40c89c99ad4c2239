// Ernie4_5ForCausalLM: Llama with interleaved RoPE and one flag for all biases. Ernie4_5_MoeForCausalLM has
// experts in most layers, with softmax scores and a correction bias for their choice.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_ernie4_5_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("use_bias", false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = bias; });
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
}

// Sets experts in the layers that moe_layer_start_index, moe_layer_end_index and moe_layer_interval select.
void read_ernie4_5_moe_config(const JsonNode& json, ModelSpec& spec) {
  reject_flag(json, "use_bias", "biases of experts");
  read_ernie4_5_config(json, spec);
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 64,
                                           .top_k = 6,
                                           .top_k_alias = "moe_k",
                                           .num_experts_key = "moe_num_experts",
                                           .intermediate_size = 1536});
  experts.correction = experts.correction_row = true;
  const int num_shared = json.find_integer("moe_num_shared_experts", 0, 1 << 8).value_or(2);
  experts.shared_intermediate_size = num_shared * experts.intermediate_size;
  const int first = json.find_integer("moe_layer_start_index", 0, 1 << 16).value_or(1);
  const int last = json.find_integer("moe_layer_end_index", -1, 1 << 16).value_or(-1);
  const int interval = json.find_integer("moe_layer_interval", 1, 1 << 16).value_or(1);
  for (int i = first; i < spec.num_layers(); ++i)
    if ((i + 1) % interval == 0 && (last < 0 || i <= last)) spec.layers[static_cast<size_t>(i)].mlp = experts;
}

}  // namespace

constinit const ModelArchitecture kErnie45Moe{
    .name = "Ernie4_5_MoeForCausalLM",
    .models = "ERNIE 4.5 21B-A3B, 300B-A47B",
    .read_config = read_ernie4_5_moe_config,
    .defaults = {.intermediate_size = 12288,
                 .num_kv_heads = 4,
                 .norm_eps = 1e-5,
                 .tie_word_embeddings = true,
                 .rope = {.theta = 500000.0}},
    .names = {.router_correction = "mlp.moe_statics.e_score_correction_bias"}};

constinit const ModelArchitecture kErnie45{.name = "Ernie4_5ForCausalLM",
                                           .models = "ERNIE 4.5 0.3B",
                                           .read_config = read_ernie4_5_config,
                                           .defaults = {.num_kv_heads = 2,
                                                        .head_dim = 128,
                                                        .norm_eps = 1e-5,
                                                        .tie_word_embeddings = true,
                                                        .rope = {.theta = 500000.0}},
                                           .prediction = &kErnie45Prediction};

}  // namespace attend
