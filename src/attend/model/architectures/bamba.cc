// BambaForCausalLM: Mamba-2 in most layers, attention in those of attn_layer_indices, and a gated MLP in all.
#include <string>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/causal_conv.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// An array of two numbers. The second one may be infinity, which transformers writes as an object.
void read_step_limits(const JsonNode& json, Mamba2Spec& mamba) {
  const auto limits = json.find("time_step_limit");
  if (!limits) return;
  const std::string expected = "an array of the smallest and the largest step";
  if (!limits->value().is_array() || limits->value().size() != 2) limits->reject(expected);
  const Json& smallest = limits->value()[0];
  const Json& largest = limits->value()[1];
  if (!smallest.is_number() || smallest.get<double>() < 0.0) limits->reject(expected);
  mamba.min_step = static_cast<float>(smallest.get<double>());
  if (largest.is_object() && largest.contains("__float__") && is_string(largest["__float__"], "Infinity"))
    return;
  if (!largest.is_number() || largest.get<double>() < smallest.get<double>()) limits->reject(expected);
  mamba.max_step = static_cast<float>(largest.get<double>());
}

Mamba2Spec read_mamba2(const JsonNode& json, int hidden_size) {
  const auto size = [&](const char* key, int missing) {
    return json.find_integer(key, 1, 1 << 16).value_or(missing);
  };
  const int64_t features = int64_t{size("mamba_expand", 2)} * hidden_size;
  Mamba2Spec mamba{.num_heads = size("mamba_n_heads", 128),
                   .num_groups = size("mamba_n_groups", 1),
                   .state_dim = size("mamba_d_state", 256),
                   .conv_kernel = size("mamba_d_conv", 4),
                   .conv_bias = json.boolean_or("mamba_conv_bias", true),
                   .proj_bias = json.boolean_or("mamba_proj_bias", false)};
  const auto head_dim = json.find("mamba_d_head");
  mamba.head_dim = head_dim && !is_string(head_dim->value(), "auto")
                       ? size("mamba_d_head", 1)
                       : static_cast<int>(features / mamba.num_heads);
  if (int64_t{mamba.num_heads} * mamba.head_dim != features)
    fail(ErrorCode::kCorruptFile, json.where("mamba_n_heads"), " ", mamba.num_heads, " with mamba_d_head ",
         mamba.head_dim, ": expected a product of mamba_expand * hidden_size, ", features);
  if (mamba.num_heads % mamba.num_groups != 0)
    fail(ErrorCode::kCorruptFile, json.where("mamba_n_groups"), " ", mamba.num_groups,
         ": expected a divisor of mamba_n_heads ", mamba.num_heads);
  if (mamba.conv_kernel < 2 || mamba.conv_kernel > kernels::kMaxConvKernel)
    fail(ErrorCode::kUnsupported, json.where("mamba_d_conv"), " ", mamba.conv_kernel,
         ": attend supports 2 to ", kernels::kMaxConvKernel);
  read_step_limits(json, mamba);
  return mamba;
}

void read_bamba_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  // transformers ignores the field of the config.
  spec.ropes.at(0).rotary_dim = head_dim / 2 / 2 * 2;
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
  std::vector<bool> is_mamba(spec.layers.size(), true);
  if (const auto full = json.find("attn_layer_indices"))
    for (size_t i = 0; i < full->array_size(); ++i)
      is_mamba[static_cast<size_t>(full->at(i).integer(0, spec.num_layers() - 1))] = false;
  const Mamba2Spec mamba = read_mamba2(json, spec.hidden_size);
  for (size_t i = 0; i < is_mamba.size(); ++i)
    if (is_mamba[i]) spec.layers[i].mixer = mamba;
}

}  // namespace

constinit const ModelArchitecture kBamba{.name = "BambaForCausalLM",
                                         .read_config = read_bamba_config,
                                         .defaults = {.vocab_size = 128000,
                                                      .hidden_size = 4096,
                                                      .intermediate_size = 14336,
                                                      .num_layers = 32,
                                                      .num_q_heads = 32,
                                                      .num_kv_heads = 8,
                                                      .max_position_embeddings = 262144,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.partial_rotary_factor = 0.5}},
                                         .names = {.final_norm = "model.final_layernorm",
                                                   .mlp_norm = "pre_ff_layernorm",
                                                   .gate_proj = "feed_forward.gate_proj",
                                                   .up_proj = "feed_forward.up_proj",
                                                   .down_proj = "feed_forward.down_proj",
                                                   .in_proj = "mamba.in_proj",
                                                   .conv = "mamba.conv1d",
                                                   .a_log = "mamba.A_log",
                                                   .dt_bias = "mamba.dt_bias",
                                                   .state_d = "mamba.D",
                                                   .gated_norm = "mamba.norm",
                                                   .out_proj = "mamba.out_proj"}};

}  // namespace attend
