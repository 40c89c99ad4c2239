// The expanded form of latent attention: every head has keys and values of its own, made of latent rows.
// Those of the new tokens are attended to first, causally; then a cached prefix, chunk by chunk and without a
// mask, and merged by LSE.
#pragma once

#include <vector>

#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"

namespace attend {

struct ExpandedMla {
  const MlaSpec& spec;
  const AttentionLayer& layer;          // expanded_layer() of the spec
  TensorView key_weight, value_weight;  // [num_heads, nope_dim, rank], [num_heads, v_dim, rank]
  TensorView q;                         // [num_tokens, num_heads, nope_dim + rope_dim], rotated
  TensorView rows;                      // [num_tokens, rank + rope_dim]: latent rows of the new tokens
  kernels::KvDestination cache;         // where they were stored, beside older ones
  TensorView out;                       // [num_tokens, num_heads, v_dim]
};
// Takes expanded_scratch_widths() of the scratch.
void attend_expanded(ModuleStep& step, const ExpandedMla& args);
std::vector<int64_t> expanded_scratch_widths(const MlaSpec& spec);

}  // namespace attend
