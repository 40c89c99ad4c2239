// What lies between a layer's input and its attention, as a model speaks of it.
#pragma once

#include "attend/kernels/fused/residual.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/rope.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// What lies between a layer's input and its attention, as one piece of work.

// linear(product), then norm_rope_store(rope, store): q and k of `rope` and v of `store` are parts of
// product.out. q and what is stored have the same bits as after these calls. On a GPU with the shared memory
// of Hopper it is one launch for up to 16 rows of bf16 whose heads turn as a whole, when q, k and v, in this
// order, are all of product.out; that one leaves k and v in product.out as they are. Heads with norms are
// part of it while the GPU has SMs for them all at once (132: 66 heads of up to 128). Shapes, dtypes and
// errors as of the two calls; Error(kInvalidArgument) also when k of `store` is not that of `rope`.
void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

// Norms of q and k before they are rotated: of each head by weights of [head_dim] (Qwen3), or of all heads of
// a token as one by weights of [num_heads * head_dim] (OLMo 2); empty: none.
struct QkNorm {
  TensorView q = {}, k = {};
  float eps = 1e-6f;
  bool after_rope = false;  // of each head, without weights, after it is rotated (Llama 4)
};

// Angles of rotary embeddings: as of NormRopeArgs. Without cosines nothing is rotated.
struct RopeAngles {
  TensorView cos = {}, sin = {};       // f32 [num_rows, rotary_dim / 2]
  View<const int32_t> positions = {};  // [num_tokens]: rows of cos and sin
  bool interleaved = false;
};

struct NormQkvRopeStoreArgs {
  Norm norm;
  LinearParts qkv;  // out_features: the heads of q, of k, of v
  QkNorm qk_norm = {};
  RopeAngles rope;
  // Of q, by positions.
  QueryTemperature temperature = {};
  View<const int32_t> positions = {};  // [num_tokens], where there is a temperature
  KvDestination to;                    // [.., num_kv_heads, head_dim]
  int num_q_heads = 0, num_kv_heads = 0;
  TensorView qkv_out;  // [num_tokens, (num_q_heads + 2 * num_kv_heads) * head_dim]: scratch
};
// q, k, v = W norm(residual) + b; heads of q and k are normalized and rotated; k and v are stored. Returns q,
// the first heads of qkv_out: [num_tokens, num_q_heads, head_dim]. What else is in qkv_out then is undefined.
//
// On a GPU a launch of this waits for the launch before it before it lets the next one start, as prefix_ready
// asks of what stores K and V (attention_batch.h).
TensorView norm_qkv_rope_store(Residual& residual, const NormQkvRopeStoreArgs& args,
                               const OpContext& context);

}  // namespace attend::kernels

#pragma GCC visibility pop
