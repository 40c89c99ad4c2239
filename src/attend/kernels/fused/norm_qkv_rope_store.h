// Operations between a layer's input and its attention.
#pragma once

#include "attend/kernels/fused/residual.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/rope.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// Operations between a layer's input and its attention, fused.

// linear(product), then norm_rope_store(rope, store): q and k of `rope` and v of `store` are parts of
// product.out. q and stored values have the same bits as after these calls. On a GPU with the shared memory
// of Hopper this is one launch for up to 16 rows of bf16 with completely rotated heads, if product.out
// consists of q, k and v in this order; it does not write k and v to product.out. Normalized heads are
// supported while all of them run concurrently (132 SMs: 66 heads of up to 128). Shapes, dtypes and errors
// are those of the two calls; also throws Error(kInvalidArgument) if k of `store` is not that of `rope`.
void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

// Norms of q and k before they are rotated: per head with weights of [head_dim] (Qwen3), or over all heads of
// a token with weights of [num_heads * head_dim] (OLMo 2); empty: none.
struct QkNorm {
  TensorView q = {}, k = {};
  float eps = 1e-6f;
  bool after_rope = false;  // normalizes each head without weights after the rotation (Llama 4)
};

// Angles of rotary embeddings, as in NormRopeArgs. Without cosines nothing is rotated.
struct RopeAngles {
  TensorView cos = {}, sin = {};       // f32 [num_rows, rotary_dim / 2]
  View<const int32_t> positions = {};  // [num_tokens]: rows of cos and sin
  bool interleaved = false;
};

struct NormQkvRopeStoreArgs {
  Norm norm;
  LinearParts qkv;  // out_features: heads of q, of k, of v
  QkNorm qk_norm = {};
  RopeAngles rope;
  // Temperature of q, by position.
  QueryTemperature temperature = {};
  View<const int32_t> positions = {};  // [num_tokens], if there is a temperature
  KvDestination to;                    // [.., num_kv_heads, head_dim]
  int num_q_heads = 0, num_kv_heads = 0;
  TensorView qkv_out;  // [num_tokens, (num_q_heads + 2 * num_kv_heads) * head_dim]: scratch
};
// q, k, v = W norm(residual) + b; heads of q and k are normalized and rotated; k and v are stored. Returns q,
// the first heads of qkv_out: [num_tokens, num_q_heads, head_dim]. The rest of qkv_out is then undefined.
//
// On a GPU, each launch waits for the previous one before it allows the next one to start, as prefix_ready
// requires of kernels that store K and V (attention_batch.h).
TensorView norm_qkv_rope_store(Residual& residual, const NormQkvRopeStoreArgs& args,
                               const OpContext& context);

}  // namespace attend::kernels

#pragma GCC visibility pop
