// AttentionLayer: geometry and features of one layer's attention, independent of kernels.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attend/kernels/attention/attention_batch.h"
#include "attend/tensor/dtype.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

enum class AttentionType : uint8_t {
  kDecoder,               // causal, unless there is a window_right
  kDecoderBidirectional,  // every token of the request, cached or new; with windows, those in its window
  kEncoderOnly,           // same as kDecoderBidirectional, without cached tokens
  kCross,                 // the encoder's tokens
};

// MHA layers keep K and V; an MLA layer is one of a pair that shares its pool layer: absorbed (over the
// latent row) or expanded (contiguous K/V of head dims 192/128).
enum class KvKind : uint8_t { kMha, kMla };

// Indexer of a layer with sparse attention (kernels/indexer): each query attends to the top_k keys with the
// highest scores.
struct KeyIndexer {
  int top_k = 0;                    // 0: none, queries attend to all keys
  int num_heads = 0, head_dim = 0;  // of index queries; 0: attends to the keys that the indexer of an earlier
                                    // layer selected

  // Returns whether a step with this upper bound of seqlen_kv (0: unknown) selects keys. Steps in which every
  // query sees at most top_k keys do not need a selection. Batch-invariant steps always select, so that one
  // kernel computes a token in every step.
  bool selects(int max_seqlen_kv, bool batch_invariant) const {
    return top_k > 0 && (batch_invariant || max_seqlen_kv == 0 || max_seqlen_kv > top_k);
  }
};

// Head counts are per rank.
struct AttentionLayer {
  int layer_id = 0;  // layer of the KV pool
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim_qk = 0;  // MLA absorbed: kv_lora_rank + rope_dim
  int head_dim_v = 0;   // MLA absorbed: kv_lora_rank
  int rope_dim = 0;     // MLA: trailing part of head_dim_qk, passed as q_rope and k_rope
  KvKind kind = KvKind::kMha;
  AttentionType type = AttentionType::kDecoder;
  float scale = 1.0f;
  float logit_cap = 0.0f;  // 0: none
  int window_left = -1;    // inclusive; -1: none
  int window_right = 0;    // tokens after its own that a query sees; 0: none, or by `type`; -1: all
  int chunk = 0;           // 0: none
  // Tokens of an image see later ones of it (ForwardBatch::items).
  bool bidirectional_items = false;
  bool has_sinks = false;
  View<const float> sinks = {};  // [num_q_heads] on the device; empty: none, or not loaded yet
  KeyIndexer indexer = {};       // MLA

  bool bidirectional() const {
    return window_right != 0 || bidirectional_items || type == AttentionType::kDecoderBidirectional ||
           type == AttentionType::kEncoderOnly;
  }
  kernels::AttentionMask attention_mask() const {
    return {.causal = type == AttentionType::kDecoder || window_right != 0,
            .window_left = window_left,
            .chunk = chunk,
            .window_right = window_right < 0 ? std::numeric_limits<int32_t>::max() : window_right};
  }
};

// Shapes and dtypes of a model that a backend requires before the first step.
struct ModelGeometry {
  std::vector<AttentionLayer> layers = {};
  // Second layer of each pair of MLA layers, for contiguous keys and values.
  std::vector<AttentionLayer> expanded_layers = {};
  DType dtype = DType::kF32;     // of q, k, v and out
  DType kv_dtype = DType::kF32;  // of the pool; kU8: scaled rows
  int max_context_len = 0;
};

// Upper bounds of every step. Workspace sizes and the scheduler's admission depend on them.
struct BatchLimits {
  int max_reqs = 0;
  int max_tokens = 0;         // new tokens of a step
  int64_t max_kv_tokens = 0;  // sum of seqlen_kv over a step; bounds partial results
  // Draft tokens among the new tokens of a step; each has its own row of logits.
  int max_draft_tokens = 0;
  int max_draft_reqs = 0;  // requests of a step with drafts
  // New tokens of a request in a step with a tree mask; 0: no step has one.
  int max_tree_tokens = 0;

  int max_logit_rows() const { return max_reqs + max_draft_tokens; }
  // New tokens of requests with drafts: the drafts, and the token before the first one of each request.
  int max_verified_tokens() const { return max_draft_tokens + max_draft_reqs; }
};

}  // namespace attend
#pragma GCC visibility pop
