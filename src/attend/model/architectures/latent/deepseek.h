// Common parts of DeepSeek-V2, DeepSeek-V3 and later models of this design: multi-head latent attention, and
// dense layers before layers with experts.
#pragma once

#include "attend/model/architectures/architecture.h"

namespace attend {

// Alternative names of fields. They apply if the file has them.
struct DeepseekAliases {
  const char *top_k = nullptr, *num_shared_experts = nullptr, *num_groups = nullptr, *normalizes = nullptr;
};

// 0: the field is required, unless a comment defines it.
struct DeepseekDefaults {
  int num_layers = 0, num_heads = 0, intermediate_size = 0;
  int q_lora_rank = 0;  // 0: q is projected from x
  int moe_intermediate_size = 0;
  int num_experts = 0, top_k = 0;
  int num_shared_experts = 0, first_dense_layers = 0;
  int num_groups = 0, top_groups = 0;  // 0: no groups
  float routed_scale = 1.0f;
  int nope_dim = 128, rope_dim = 64, v_dim = 128;  // per head of latent attention
  bool interleaved_rope = true;                    // value of an absent rope_interleave
  // partial_rotary_factor is a share of both parts of a head of q, as transformers writes it (Mistral 4).
  bool rope_share_of_head = false;
  const char* num_experts_key = "n_routed_experts";  // null: as in MoeDefaults
  DeepseekAliases aliases = {};
};

// Sets layers with latent attention, their rope and attention scale. MLPs are set by the functions below.
void read_latent_layers(const JsonNode& json, const DeepseekDefaults& defaults, ModelSpec& spec);
// Sets the MLPs of existing layers: first dense ones, according to first_k_dense_replace or mlp_layer_types,
// then grouped experts with a shared expert.
void read_deepseek_mlps(const JsonNode& json, const DeepseekDefaults& defaults,
                        const kernels::RouterRule& rule, ModelSpec& spec);
// Same for a router as in V3: sigmoid scores, and a correction bias for the choice of experts. `normalized`:
// value of an absent norm_topk_prob.
void read_corrected_experts(const JsonNode& json, const DeepseekDefaults& defaults, bool normalized,
                            ModelSpec& spec);

// Returns for each layer whether its MLP is dense, from mlp_layer_types or first_k_dense_replace, with
// `missing` dense layers if both are absent.
std::vector<bool> read_dense_mlps(const JsonNode& json, size_t num_layers, int missing);
// Sets experts in the layers that are not dense.
void set_sparse_mlps(const std::vector<bool>& is_dense, const MoeMlpSpec& experts, ModelSpec& spec);

// Sets all layers of a Mistral 4 config: the text model of Mistral3ForConditionalGeneration may be one.
void read_mistral4_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);

// Parts of these functions: latent attention without rope; grouped experts with a shared expert; the rule of
// V3's router.
MlaSpec read_latent_attention(const JsonNode& json, const DeepseekDefaults& defaults);
MoeMlpSpec read_deepseek_experts(const JsonNode& json, const DeepseekDefaults& defaults,
                                 const kernels::RouterRule& rule);
kernels::RouterRule read_corrected_rule(const JsonNode& json, bool normalized, const char* alias = nullptr);

}  // namespace attend
