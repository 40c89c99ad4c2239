// What lies between the projections of multi-head latent attention and its attention, as one piece of work.
#pragma once

#include "attend/kernels/kv_store/kv_destination.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Activations are f32 on the CPU, f32, f16 or bf16 on GPUs, last stride 1. Positions, cos and sin as of
// norm_rope().
struct LatentNormRopeStoreArgs {
  TensorView kv_a;  // [num_tokens, kv_lora_rank + rope_dim]: changed in place
  TensorView norm;  // [kv_lora_rank]: f32, f16, bf16
  float eps = 1e-6f;
  TensorView q_rope;                   // [num_tokens, num_heads, rope_dim]: changed in place
  View<const int32_t> positions = {};  // [num_tokens]
  TensorView cos = {}, sin = {};       // f32 [num_positions, rope_dim / 2]
  bool interleaved = false;            // as of rope()
  KvDestination to;                    // as of store_mla()
  // Given: it and the rotated q_rope are rounded to e4m3, as attention in fp8 has them; numbers beyond its
  // range become the largest. [num_tokens, num_heads, any]: of the dtype of q_rope, last stride 1.
  TensorView q_latent = {};
};
// kv_a becomes the token's latent row: rms_norm() of the first kv_lora_rank features, the others rotated as a
// head of their own. The row is stored as store_mla() stores it; kv_a then is what the cache has, rounded as
// it is, so that keys made of it now and later are the same. q_rope is rotated. On a GPU it is one launch.
// Throws as the three do.
void latent_norm_rope_store(const LatentNormRopeStoreArgs& args, Stream& stream);
void check(const LatentNormRopeStoreArgs& args, const Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
