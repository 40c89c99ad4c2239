// What DeepSeek-V2 and DeepSeek-V3 have alike: multi-head latent attention, and dense layers before those
// with experts.
#pragma once

#include "attend/model/architecture.h"

namespace attend {

struct DeepseekDefaults {
  int num_layers, num_heads, intermediate_size, q_lora_rank, moe_intermediate_size;
  int num_experts, top_k;  // top_k 0: the field has to be there
  int num_shared_experts, first_dense_layers;
  int num_groups, top_groups;  // 0: no groups
  float routed_scale;
};

// Layers, ropes and what the router scales by; `rule` says how it scores and weighs.
void read_deepseek_layers(const JsonNode& json, const DeepseekDefaults& defaults,
                          const kernels::RouterRule& rule, ModelSpec& spec);

// Refuses a field, if it is there, that is not `expected`: what attend and transformers compute without
// reading it.
void expect_string(const JsonNode& json, const char* key, std::string_view expected);

}  // namespace attend
