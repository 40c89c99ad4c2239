// Store of new K/V into a pool. Stored values are x / scale, rounded to the pool's dtype (fp8 saturates).
// Scaled rows (selected_rows.h) have additional descales per group.
#pragma once

#include <cstdint>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// KvDestination: destination of the new K/V of a step.

// Cache of one layer, and the slots of a step's new tokens in it. All addresses and scales are fixed for a
// layer and a padded batch size, so graphs may record them; the contents of the slots change with each step.
struct KvDestination {
  TensorView k = {};  // [num_pages, page_size, num_kv_heads, head_dim_qk]; last stride 1. MLA: whole latent
                      // rows, [num_pages, page_size, kv_lora_rank + rope_dim]
  TensorView v = {};  // [num_pages, page_size, num_kv_heads, head_dim_v]; MLA: empty
  View<const int32_t> slots = {};  // [num_tokens] token slots; -1: not stored
  // Token slot -> slot of this layer's half of the pool (SWA); null: identity.
  const int32_t* slot_map = nullptr;
  float k_scale = 1.0f, v_scale = 1.0f;  // descales: stored values are x / scale
  bool fp8_q = false;  // absorbed MLA: q must be rounded to e4m3, its rope part after the rotation
};

struct StoreKvArgs {
  TensorView k;  // [num_tokens, num_kv_heads, head_dim_qk]: f32, f16, bf16; last stride 1
  TensorView v;  // [num_tokens, num_kv_heads, head_dim_v]
  KvDestination to;
};
// Checks shapes, dtypes and scales. Throws Error with the invalid argument.
void check(const StoreKvArgs& args);
// Stores rows at their slots. Kernels do not check the slots; the host did when it wrote them.
void store_kv(const StoreKvArgs& args, Stream& stream);

struct StoreMlaArgs {
  TensorView latent;  // [num_tokens, kv_lora_rank]
  TensorView rope;    // [num_tokens, rope_dim]
  KvDestination to;   // to.k: [num_pages, page_size, kv_lora_rank + rope_dim], or scaled rows
};
void check(const StoreMlaArgs& args);
void store_mla(const StoreMlaArgs& args, Stream& stream);

namespace reference {
void store_kv(const StoreKvArgs& args);
void store_mla(const StoreMlaArgs& args);
}  // namespace reference

}  // namespace attend::kernels

#pragma GCC visibility pop
