// What every attention family is told about a step: the ragged batch, which keys a query sees, how a score is
// made.
#pragma once

#include <cstdint>
#include <limits>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Up to so many keys a request is short: decode of few requests ends sooner then on a GPU that plans for
// short ones, and later beyond.
inline constexpr int kShortRequestMaxKeys = 2048;

// The new tokens of all requests, one request after another. Arrays lie on the device.
//
// Query j of request r is token cu_seqlen_q[r] + j; seqlen_q = cu_seqlen_q[r + 1] - cu_seqlen_q[r]. Tokens at
// or beyond cu_seqlen_q[num_reqs] are padding: their output is 0 and their LSE -inf.
struct QueryBatch {
  View<const int32_t> cu_seqlen_q;  // [num_reqs + 1]
  View<const int32_t> seqlen_kv;    // [num_reqs]: all keys, those of the new tokens included
  int max_seqlen_q = 0;             // an upper bound of seqlen_q; never changes a result
  // An upper bound of all requests' new tokens, by which GPUs shape a plan; 0: the most that the plan takes.
  int num_tokens = 0;
  // An upper bound of seqlen_kv, or of keys seen. GPUs plan by it: it decides speed and, unless splits are
  // fixed, last bits. 0: none known, which costs few decodes some per cent; too small a one costs time only.
  int max_seqlen_kv = 0;

  // Tree mask (speculative decoding), for causal attention; empty: none. Bit b of word w of a token: it sees
  // new token 64 * w + b of its request. Covers the last seqlen_q keys only; the prefix is visible.
  View<const uint64_t> tree_mask = {};  // [num_tokens, tree_mask_words]
  int tree_mask_words = 0;              // ceil(max_seqlen_q / 64)
  View<const int32_t> positions = {};   // [num_tokens]; read only with a tree mask

  int num_reqs() const { return static_cast<int>(seqlen_kv.size()); }
};

// Query j stands at p = seqlen_kv - seqlen_q + j, or at positions[j] under a tree mask, and sees the keys
//   lo <= k <= p,  lo = max(0, p - window_left, floor(p / chunk) * chunk).
// Without `causal` (bidirectional and cross attention) p is the last key, seqlen_kv - 1. With a window_right
// it sees so many keys behind p too, those of its chunk alone where there are chunks. Under a tree mask a new
// token is seen when its bit is set and lo <= its position: windows use positions, not indices. Kernels may
// give a key that a query does not see the probability 0 instead of leaving it out, so an infinity or a NaN
// among the values of a request's keys may reach its other queries of the same step.
struct AttentionMask {
  bool causal = true;
  int32_t window_left = -1;  // inclusive distance: Hugging Face's sliding_window w is w - 1; -1: no window
  int32_t chunk = 0;         // chunked local attention (Llama 4); 0: none
  int32_t window_right =
      0;  // of causal attention without a tree mask, as far behind p; INT32_MAX: up to the last key

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

// score = scale * k_scale * q.k, then logit_cap * tanh(score / logit_cap) when there is a cap.
struct ScoreRule {
  float scale = 1.0f;      // 1 is the products as they are; models usually have 1 / sqrt(head_dim)
  float logit_cap = 0.0f;  // 0: none
  // One logit per query head: enters the denominator once, in the last merge; LSE excludes it. Empty: none.
  View<const float> sinks = {};  // [num_q_heads]
};

// `prefix_ready` of AttentionArgs and MlaArgs is a promise that lets a kernel on a GPU look up its keys,
// and ask for those before a request's new tokens (positions below seqlen_kv - seqlen_q), while the launch
// before it on the stream still runs. It changes no result. Among the launches on the stream there must be
// one, M, so that
//   - all that attention reads but q and the keys of new tokens (plan, lengths, masks, index, older keys) was
//     written by launches before M;
//   - M, and what comes between M and attention, writes none of it;
//   - M waits for the launch before it before it lets the next one start. So does every launch without
//     programmatic dependent launch, and so do linear(), qkv_norm_rope_store() and the stores.
// Then whatever comes before M has ended when attention starts, though those between M and attention may
// start each other early: none starts before M lets it. What this rules out: a plan, a page table or lengths
// made just before attention, and a step in which new keys of one request are older keys of another.

// LSE of a row that sees no key. Its output is 0.
inline constexpr float kEmptyLse = -std::numeric_limits<float>::infinity();

}  // namespace attend::kernels
#pragma GCC visibility pop
