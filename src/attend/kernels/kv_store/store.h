// Storing new K/V into a pool. What is stored is x / scale, rounded to the pool's dtype (fp8 saturates), of
// scaled rows (selected_rows.h) by descales of their own beside.
#pragma once

#include <cstdint>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// KvDestination: where the new K/V of a step go.

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

struct StoreKvArgs {
  TensorView k;  // [num_tokens, num_kv_heads, head_dim_qk]: f32, f16, bf16; last stride 1
  TensorView v;  // [num_tokens, num_kv_heads, head_dim_v]
  KvDestination to;
};
// Shapes, dtypes and scales; throws Error naming what is wrong.
void check(const StoreKvArgs& args);
// Slots were checked on the host when they were written; a kernel trusts them.
void store_kv(const StoreKvArgs& args, Stream& stream);

struct StoreMlaArgs {
  TensorView latent;  // [num_tokens, kv_lora_rank]
  TensorView rope;    // [num_tokens, rope_dim]
  KvDestination to;   // its k: [num_pages, page_size, kv_lora_rank + rope_dim], or scaled rows
};
void check(const StoreMlaArgs& args);
void store_mla(const StoreMlaArgs& args, Stream& stream);

namespace reference {
void store_kv(const StoreKvArgs& args);
void store_mla(const StoreMlaArgs& args);
}  // namespace reference

}  // namespace attend::kernels

#pragma GCC visibility pop
