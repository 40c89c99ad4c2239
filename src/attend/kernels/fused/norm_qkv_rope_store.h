// What lies between a layer's input and its attention, as a model speaks of it.
#pragma once

#include "attend/kernels/fused/residual.h"
#include "attend/kernels/kv_store/kv_destination.h"
#include "attend/kernels/norm_rope/rope.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Norms of q and k before they are rotated: of each head by weights of [head_dim] (Qwen3), or of all heads of
// a token as one by weights of [num_heads * head_dim] (OLMo 2); empty: none.
struct QkNorm {
  TensorView q = {}, k = {};
  float eps = 1e-6f;
  bool behind_rope = false;  // of each head, without weights, after it is rotated (Llama 4)
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
