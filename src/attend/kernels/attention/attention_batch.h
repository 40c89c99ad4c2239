// Arguments that all attention families share: the ragged batch, the mask, and the computation of a score.
#pragma once

#include <cstdint>
#include <limits>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Largest number of keys of a short request. On a GPU a plan for short requests makes decode of few requests
// faster up to this length, and slower beyond it.
inline constexpr int kShortRequestMaxKeys = 2048;

// The new tokens of all requests, one request after another. Arrays are on the device.
//
// Query j of request r is token cu_seqlen_q[r] + j; seqlen_q = cu_seqlen_q[r + 1] - cu_seqlen_q[r]. Tokens at
// or beyond cu_seqlen_q[num_reqs] are padding: their output is 0 and their LSE -inf.
struct QueryBatch {
  View<const int32_t> cu_seqlen_q;  // [num_reqs + 1]
  View<const int32_t> seqlen_kv;    // [num_reqs]: all keys, including those of the new tokens
  int max_seqlen_q = 0;             // an upper bound of seqlen_q; never changes a result
  // An upper bound of all requests' new tokens, which determines a plan's shape on GPUs; 0: the plan's
  // max_tokens.
  int num_tokens = 0;
  // An upper bound of seqlen_kv, or of visible keys. Plans on GPUs use it: it affects speed and, unless
  // splits are fixed, last bits. 0: unknown, which slows decode of few requests by some percent. A bound that
  // is too small costs only time.
  int max_seqlen_kv = 0;

  // Tree mask (speculative decoding), for causal attention; empty: none. Bit b of word w of a token: it sees
  // new token 64 * w + b of its request. Covers the last seqlen_q keys only; the prefix is visible.
  View<const uint64_t> tree_mask = {};  // [num_tokens, tree_mask_words]
  int tree_mask_words = 0;              // ceil(max_seqlen_q / 64)
  View<const int32_t> positions = {};   // [num_tokens]; read only with a tree mask

  int num_reqs() const { return static_cast<int>(seqlen_kv.size()); }
};

// Visibility of keys. Query j has position p = seqlen_kv - seqlen_q + j, or positions[j] with a tree mask,
// and sees the keys
//   lo <= k <= p,  lo = max(0, p - window_left, floor(p / chunk) * chunk).
// Without `causal` (bidirectional and cross attention) p is the last key, seqlen_kv - 1. With window_right
// the query also sees the next window_right keys after p, but only those of its chunk if there are chunks.
// With a tree mask a new token is visible if its bit is set and lo <= its position: windows use positions,
// not indices. Kernels may assign probability 0 to a masked key instead of skipping it, so an infinity or a
// NaN among the values of a request's keys may propagate to its other queries of the same step.
struct AttentionMask {
  bool causal = true;
  int32_t window_left = -1;  // inclusive distance: Hugging Face's sliding_window w is w - 1; -1: no window
  int32_t chunk = 0;         // chunked local attention (Llama 4); 0: none
  int32_t window_right =
      0;  // keys after p, for causal attention without a tree mask; INT32_MAX: up to the last key

  bool operator==(const AttentionMask&) const = default;
};

// First visible key of a query at position p.
inline int32_t first_unmasked(const AttentionMask& attention_mask, int32_t p) {
  int32_t lo = 0;
  if (attention_mask.window_left >= 0 && p - attention_mask.window_left > lo)
    lo = p - attention_mask.window_left;
  if (attention_mask.chunk > 0 && p / attention_mask.chunk * attention_mask.chunk > lo)
    lo = p / attention_mask.chunk * attention_mask.chunk;
  return lo;
}

// Last visible key of a query at position p of a request with seqlen_kv keys; below the first: none.
inline int32_t last_unmasked(const AttentionMask& attention_mask, int32_t p, int32_t seqlen_kv) {
  int64_t hi = int64_t{p} + attention_mask.window_right;
  if (attention_mask.chunk > 0 && attention_mask.window_right > 0) {
    const int64_t next_chunk = p < 0 ? 0 : (int64_t{p} / attention_mask.chunk + 1) * attention_mask.chunk;
    hi = hi < next_chunk ? hi : next_chunk - 1;
  }
  return static_cast<int32_t>(hi < seqlen_kv ? hi : seqlen_kv - 1);
}

// score = scale * k_scale * q.k; with a cap then logit_cap * tanh(score / logit_cap).
struct ScoreRule {
  float scale = 1.0f;      // 1: unscaled products; models usually have 1 / sqrt(head_dim)
  float logit_cap = 0.0f;  // 0: none
  // One logit per query head, added to the denominator once, in the last merge; LSE excludes it. Empty: none.
  View<const float> sinks = {};  // [num_q_heads]
};

// `prefix_ready` of AttentionArgs and MlaArgs is a guarantee of the caller. It allows a kernel on a GPU to
// look up its keys, and to load those before a request's new tokens (positions below seqlen_kv - seqlen_q),
// while the preceding launch on the stream still runs. It changes no result. One launch M on the stream must
// meet these conditions:
//   - launches before M wrote all inputs of attention except q and the keys of new tokens (plan, lengths,
//     masks, index, older keys);
//   - M and the launches between M and attention write none of these inputs;
//   - M waits for its preceding launch before it allows the next one to start. Every launch without
//     programmatic dependent launch does so, and so do linear(), qkv_norm_rope_store() and the stores.
// All launches before M have then ended when attention starts. Launches between M and attention may overlap,
// but none starts before M allows it. The guarantee excludes a plan, a page table or lengths that are written
// immediately before attention, and a step in which new keys of one request are older keys of another.

// LSE of a row without visible keys. Its output is 0.
inline constexpr float kEmptyLse = -std::numeric_limits<float>::infinity();

}  // namespace attend::kernels
#pragma GCC visibility pop
