// What lies between a layer's input and its attention, as a model speaks of it.
#pragma once

#include "attend/kernels/fused/residual.h"
#include "attend/kernels/kv_store/kv_destination.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Norms of each head of q and k before they are rotated (Qwen3); empty weights: none.
struct QkNorm {
  TensorView q = {}, k = {};  // [head_dim]
  float eps = 1e-6f;
};

// Angles of rotary embeddings: as of NormRopeArgs.
struct RopeAngles {
  TensorView cos = {}, sin = {};       // f32 [num_rows, rotary_dim / 2]
  View<const int32_t> positions = {};  // [num_tokens]: rows of cos and sin
};

struct NormQkvRopeStoreArgs {
  Norm norm;
  LinearParts qkv;  // out_features: the heads of q, of k, of v
  QkNorm qk_norm = {};
  RopeAngles rope;
  KvDestination to;  // [.., num_kv_heads, head_dim]
  int num_q_heads = 0, num_kv_heads = 0;
  TensorView qkv_out;  // [num_tokens, (num_q_heads + 2 * num_kv_heads) * head_dim]: scratch
};
// q, k, v = W norm(residual) + b; heads of q and k are normed and rotated; k and v are stored. Returns q, the
// first heads of qkv_out: [num_tokens, num_q_heads, head_dim]. What else is in qkv_out then is undefined.
//
// On a GPU a launch of this waits for the launch before it before it lets the next one start, as prefix_ready
// asks of what stores K and V (attention_batch.h).
TensorView norm_qkv_rope_store(Residual& residual, const NormQkvRopeStoreArgs& args,
                               const OpContext& context);

}  // namespace attend::kernels
#pragma GCC visibility pop
