// Storing new K/V into a pool. What is stored is x / scale, rounded to the pool's dtype (fp8 saturates).
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct StoreKvArgs {
  TensorView k;               // [num_tokens, num_kv_heads, head_dim_qk]: f32, f16, bf16; last stride 1
  TensorView v;               // [num_tokens, num_kv_heads, head_dim_v]
  TensorView k_cache;         // [num_pages, page_size, num_kv_heads, head_dim_qk]; last stride 1
  TensorView v_cache;         // [num_pages, page_size, num_kv_heads, head_dim_v]
  View<const int32_t> slots;  // [num_tokens] token slots; -1: do not store
  const int32_t* slot_map = nullptr;  // slot of the pool's other half (SWA); null: the slot itself
  float k_scale = 1.0f;
  float v_scale = 1.0f;
};
// Shapes, dtypes and scales; throws Error naming what is wrong.
void check(const StoreKvArgs& args);
// Slots were checked on the host when they were written; a kernel trusts them.
void store_kv(const StoreKvArgs& args, Stream& stream);

struct StoreMlaArgs {
  TensorView latent;          // [num_tokens, kv_lora_rank]
  TensorView rope;            // [num_tokens, rope_dim]
  TensorView cache;           // [num_pages, page_size, kv_lora_rank + rope_dim]
  View<const int32_t> slots;  // [num_tokens]; -1: do not store
  float scale = 1.0f;
};
void check(const StoreMlaArgs& args);
void store_mla(const StoreMlaArgs& args, Stream& stream);

namespace reference {
void store_kv(const StoreKvArgs& args);
void store_mla(const StoreMlaArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
