// Storing new K/V into a pool. What is stored is x / scale, rounded to the pool's dtype (fp8 saturates), of
// scaled rows (scaled_rows.h) by descales of their own beside.
#pragma once

#include "attend/kernels/kv_store/kv_destination.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

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
