// KimiLinearForCausalLM: KDA in most layers, latent attention without RoPE in the others, and the experts of
// DeepSeek-V3.
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

constexpr DeepseekDefaults kKimiDefaults{.num_layers = 27,
                                         .num_heads = 32,
                                         .intermediate_size = 9216,
                                         .moe_intermediate_size = 1024,
                                         .num_experts = 256,
                                         .top_k = 8,
                                         .num_shared_experts = 1,
                                         .first_dense_layers = 1,
                                         .routed_scale = 2.446f,
                                         .num_experts_key = nullptr,
                                         .aliases = {.top_k = "num_experts_per_token",
                                                     .num_shared_experts = "num_shared_experts",
                                                     .num_groups = "num_expert_group",
                                                     .normalizes = "moe_renormalize"}};

GatedDeltaSpec read_kda(const JsonNode& json, float norm_eps) {
  constexpr int kLargest = 1 << 12;
  const int num_heads = json.integer("num_heads", 1, kLargest);
  const int head_dim = json.integer("head_dim", 1, kLargest);
  const int kernel = json.integer("short_conv_kernel_size", 1, kLargest);
  if (head_dim > kernels::kMaxDeltaHeadDim)
    fail(ErrorCode::kUnsupported, json.where("head_dim"), " ", head_dim, ": attend supports at most ",
         kernels::kMaxDeltaHeadDim);
  if (kernel < 2 || kernel > kernels::kMaxConvKernel)
    fail(ErrorCode::kUnsupported, json.where("short_conv_kernel_size"), " ", kernel,
         ": attend supports 2 to ", kernels::kMaxConvKernel);
  return {.num_k_heads = num_heads,
          .num_v_heads = num_heads,
          .head_dim_k = head_dim,
          .head_dim_v = head_dim,
          .conv_kernel = kernel,
          .decays_per_channel = true,
          .gate_rank = head_dim,
          .sigmoid_gate = true,
          .norm_eps = norm_eps};
}

// Returns for each layer whether it is in kda_layers. The numbers of layers begin at 1, and each is in
// exactly one of the two lists.
std::vector<bool> read_kda_layers(const JsonNode& json, int num_layers) {
  enum class Kind : uint8_t { kNone, kKda, kMla };
  std::vector<Kind> kinds(static_cast<size_t>(num_layers), Kind::kNone);
  for (const auto& [key, kind] : {std::pair{"kda_layers", Kind::kKda}, {"full_attn_layers", Kind::kMla}}) {
    const JsonNode layers = json.at(key);
    for (size_t i = 0; i < layers.array_size(); ++i) {
      const int layer = layers.at(i).integer(1, num_layers);
      Kind& known = kinds[static_cast<size_t>(layer) - 1];
      if (known != Kind::kNone)
        fail(ErrorCode::kCorruptFile, json.where(key), "[", i, "] ", layer,
             ": expected each layer once in kda_layers or full_attn_layers");
      known = kind;
    }
  }
  std::vector<bool> is_kda;
  for (const Kind kind : kinds) {
    is_kda.push_back(kind == Kind::kKda);
    if (kind == Kind::kNone)
      fail(ErrorCode::kCorruptFile, json.where("kda_layers"), ": layer ", is_kda.size(),
           " is not listed: expected it here or in full_attn_layers");
  }
  return is_kda;
}

void read_kimi_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  expect_string(json, "moe_router_activation_func", "sigmoid");
  for (const char* const key : {"mla_use_nope", "use_grouped_topk"})
    if (!json.boolean_or(key, true))
      fail(ErrorCode::kUnsupported, json.where(key), " false: attend supports true");
  if (json.find_integer("moe_layer_freq", 1, 1 << 16).value_or(1) != 1)
    json.reject("moe_layer_freq", "1: every layer after the dense ones has experts");
  if (!json.has("max_position_embeddings"))
    spec.max_position_embeddings =
        json.find_integer("model_max_length", 1, 1 << 30).value_or(defaults.max_position_embeddings);
  const int num_layers =
      json.find_integer("num_hidden_layers", 1, 1 << 16).value_or(kKimiDefaults.num_layers);
  spec.layers.assign(static_cast<size_t>(num_layers),
                     {.mixer = read_latent_attention(json, kKimiDefaults), .mlp = GatedMlpSpec()});
  read_corrected_experts(json, kKimiDefaults, /*normalized=*/true, spec);
  const JsonNode linear = json.at("linear_attn_config");
  const GatedDeltaSpec kda = read_kda(linear, spec.norm_eps);
  const std::vector<bool> is_kda = read_kda_layers(linear, num_layers);
  for (size_t i = 0; i < is_kda.size(); ++i)
    if (is_kda[i]) spec.layers[i].mixer = kda;
}

}  // namespace

constinit const ModelArchitecture kKimiLinear{
    .name = "KimiLinearForCausalLM",
    .models = "Kimi-Linear-48B-A3B",
    .read_layers = read_kimi_layers,
    .defaults = {.vocab_size = 163840,
                 .hidden_size = 2304,
                 .max_position_embeddings = 1 << 20,
                 .norm_eps = 1e-5},
    .predicts_more_tokens = true,
    .names = {.router = "block_sparse_moe.gate",
              .experts = "block_sparse_moe.experts",
              .expert_gate_proj = "w1",
              .expert_up_proj = "w3",
              .expert_down_proj = "w2",
              .router_correction = "block_sparse_moe.gate.e_score_correction_bias",
              .shared_gate_proj = "block_sparse_moe.shared_experts.gate_proj",
              .shared_up_proj = "block_sparse_moe.shared_experts.up_proj",
              .shared_down_proj = "block_sparse_moe.shared_experts.down_proj",
              .in_proj_q = "self_attn.q_proj",
              .in_proj_k = "self_attn.k_proj",
              .in_proj_v = "self_attn.v_proj",
              .in_proj_z = "self_attn.g_a_proj",
              .in_proj_b = "self_attn.b_proj",
              .in_proj_a = "self_attn.f_a_proj",
              .second_proj_z = "self_attn.g_b_proj",
              .second_proj_a = "self_attn.f_b_proj",
              .conv_q = "self_attn.q_conv1d",
              .conv_k = "self_attn.k_conv1d",
              .conv_v = "self_attn.v_conv1d",
              .a_log = "self_attn.A_log",
              .dt_bias = "self_attn.dt_bias",
              .gated_norm = "self_attn.o_norm",
              .out_proj = "self_attn.o_proj"}};

}  // namespace attend
