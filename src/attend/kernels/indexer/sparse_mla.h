// The indexer family: sparse attention over the keys that an indexer selects (DeepSeek Sparse Attention, the
// report of DeepSeek-V3.2-Exp, section 2). Small index heads score all visible keys of a query, and the
// query attends to those with the highest scores only.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Largest head_dim of index queries and keys.
inline constexpr int kMaxIndexDim = 128;

// Keys that each query of a step attends to: the first counts[t] of slots[t * width + i] are their token
// slots, in the order of their positions.
struct SelectedKeys {
  View<int32_t> slots;   // [num_tokens * width]
  View<int32_t> counts;  // [num_tokens]
  int32_t width = 0;
};

struct SparseMlaLimits {
  int max_tokens = 0;  // new tokens of a step
  int max_keys = 0;    // of one request
  int top_k = 0;       // keys that a query attends to, at most
  int num_q_heads = 0, kv_lora_rank = 0;
  bool batch_invariant = false;  // a token's bits depend on its own keys only
  DType kv_dtype = DType::kBF16;

  int width() const { return top_k < max_keys ? top_k : max_keys; }
};

// Selection and work items of a step. Allocates everything in its constructor; the memory holds the
// selection until the next select_keys().
class SparseMlaPlan {
 public:
  // Throws Error(kUnsupported) for a GPU, for which attend does not have these kernels.
  SparseMlaPlan(const SparseMlaLimits& limits, Device device);
  static size_t num_bytes(const SparseMlaLimits& limits);

  // Derives the number of keys of every query, min(top_k, visible keys), and the work items of sparse_mla().
  // `num_tokens` includes padding. Throws Error(kInvalidArgument) if the batch exceeds a limit, for a tree
  // mask, and for the lengths that AttentionPlan::plan() rejects.
  void plan(const QueryBatch& batch, int num_tokens, Stream& stream);

  const SparseMlaLimits& limits() const { return limits_; }
  int num_tokens() const { return num_tokens_; }
  SelectedKeys keys() const;
  // f32 [rows, padded max_keys]: scratch for the scores of some queries at a time.
  const TensorView& scores() const { return scores_.view(); }
  AttentionPlan& attention() { return attention_; }
  // Each query as a request of one token whose keys are pages of one slot.
  KvIndex index() const;
  QueryBatch queries() const;

 private:
  SparseMlaLimits limits_;
  int num_tokens_ = 0;
  Tensor slots_, counts_;
  Tensor token_sums_, slot_sums_;  // i32 [max_tokens + 1]: i, and i * width
  Tensor scores_;
  AttentionPlan attention_;
};

// Selects the keys with the highest scores of every query. For a visible key t of a query,
//   score(t) = sum over index heads h of weights_h max(0, q_h . k_t)
// in float32. A positive factor of all scores would not change the selection. Equal scores are ordered by
// position, smaller first; a NaN counts as the lowest score. Queries are causal.
struct SelectKeysArgs {
  TensorView q;        // f32 [num_tokens, num_heads, head_dim], rotated; last stride 1
  TensorView weights;  // f32 [num_tokens, num_heads], last stride 1
  TensorView k;        // [num_pages, page_size, head_dim]: f32, f16, bf16; last stride 1
  KvIndex index;       // of the requests' keys
  QueryBatch batch;
};
// `plan` is planned for args.batch. Throws Error(kInvalidArgument) with the invalid argument, and
// Error(kUnsupported) for a head_dim above kMaxIndexDim.
void select_keys(const SelectKeysArgs& args, SparseMlaPlan& plan, Stream& stream);

// Absorbed MLA as in MlaArgs, where each query attends to its selected keys.
struct SparseMlaArgs {
  TensorView q, q_rope, out, lse;  // as in MlaArgs; padding tokens are rows without keys
  TensorView latent;               // [num_pages, page_size, kv_lora_rank + rope_dim], contiguous
  float scale_kv = 1.0f;
  ScoreRule score;
};
// `plan` contains the step's selection.
void sparse_mla(const SparseMlaArgs& args, SparseMlaPlan& plan, Stream& stream);

// Specification: one query, one head, one key after another, in float64, on host memory.
namespace reference {
// scores[t * max_keys + key], -inf for keys that query t does not see.
void index_scores(const SelectKeysArgs& args, int max_keys, View<double> scores);
// Selects at most to.width keys per query; padding tokens have none.
void select_keys(const SelectKeysArgs& args, const SelectedKeys& to);
void sparse_mla(const SparseMlaArgs& args, const SelectedKeys& keys);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
