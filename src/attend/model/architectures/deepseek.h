// What DeepSeek-V2, DeepSeek-V3 and those that followed them have alike: multi-head latent attention, and
// dense layers before those with experts.
#pragma once

#include "attend/model/architectures/architecture.h"

namespace attend {

struct DeepseekDefaults {
  int num_layers = 0, num_heads = 0, intermediate_size = 0, q_lora_rank = 0, moe_intermediate_size = 0;
  int num_experts = 0, top_k = 0;  // 0: the field has to be there
  int num_shared_experts = 0, first_dense_layers = 0;
  int num_groups = 0, top_groups = 0;  // 0: no groups
  float routed_scale = 1.0f;
  int nope_dim = 128, v_dim = 128;  // of a head of latent attention
};

// Layers of latent attention, their rope and its scale; their MLPs are to be read.
void read_latent_layers(const JsonNode& json, const DeepseekDefaults& defaults, ModelSpec& spec);
// The MLPs of layers that are there: dense ones first, as first_k_dense_replace or mlp_layer_types say, then
// experts in groups and a shared expert.
void read_deepseek_mlps(const JsonNode& json, const DeepseekDefaults& defaults,
                        const kernels::RouterRule& rule, ModelSpec& spec);
// The same of a router as V3's: sigmoid scores, whose choice a vector of the checkpoint corrects.
// `normalized`: what an absent norm_topk_prob means.
void read_corrected_experts(const JsonNode& json, const DeepseekDefaults& defaults, bool normalized,
                            ModelSpec& spec);

}  // namespace attend
