// Expanded form of latent attention: each head has its own keys and values, computed from latent rows. Causal
// attention to the new tokens runs first. Then attention to the cached prefix runs in chunks without a mask,
// and results are merged by LSE.
#pragma once

#include <vector>

#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"

namespace attend {

struct ExpandedMla {
  const MlaSpec& spec;
  const AttentionLayer& layer;          // expanded_layer() of the spec
  TensorView key_weight, value_weight;  // [num_heads, nope_dim, rank], [num_heads, v_dim, rank]
  TensorView q;                         // [num_tokens, num_heads, nope_dim + rope_dim], after RoPE
  TensorView rows;                      // [num_tokens, rank + rope_dim]: latent rows of the new tokens
  kernels::KvDestination cache;         // cache with the new and the older rows
  TensorView out;                       // [num_tokens, num_heads, v_dim]
};
// Allocates expanded_scratch_widths() from step.scratch.
void attend_expanded(ModuleStep& step, const ExpandedMla& args);
std::vector<int64_t> expanded_scratch_widths(const MlaSpec& spec);

}  // namespace attend
