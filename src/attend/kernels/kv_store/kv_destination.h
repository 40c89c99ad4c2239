// KvDestination: where the new K/V of a step go.
#pragma once

#include <cstdint>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// The cache of one layer and the slots of a step's new tokens in it. For a layer and a padded batch size all
// addresses and scales stay as they are, so graphs may hold them; what the slots say changes with each step.
struct KvDestination {
  TensorView k = {};  // [num_pages, page_size, num_kv_heads, head_dim_qk]; last stride 1. MLA: the latent
                      // rows, whole, [num_pages, page_size, kv_lora_rank + rope_dim]
  TensorView v = {};  // [num_pages, page_size, num_kv_heads, head_dim_v]; MLA: empty
  View<const int32_t> slots = {};  // [num_tokens] token slots; -1: do not store
  const int32_t* slot_map =
      nullptr;  // token slot -> slot of this layer's half of the pool (SWA); null: the slot itself
  float k_scale = 1.0f, v_scale = 1.0f;  // descales: x / scale is stored
  bool fp8_q = false;  // absorbed MLA: q is wanted rounded to e4m3, its rotated part after the rotation
};

}  // namespace attend::kernels
#pragma GCC visibility pop
