// BuiltCase: an AttentionCase in memory. Memory that no kernel may read is poisoned: pool slots outside every
// mask contain NaN, and table entries that no query needs contain huge ids.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kernels/attention/attention.h"
#include "tests/kernels/conformance/cases/attention_case.h"
#include "tests/kernels/conformance/cases/case_index.h"
#include "tests/kernels/conformance/cases/new_tokens.h"

namespace attend::conformance {

// Inputs of a layer, rounded to q_dtype. They depend only on the seed and the shape, not on the position of
// K/V in the pool.
struct CaseValues {
  explicit CaseValues(const AttentionCase& c);

  std::vector<float> q;               // [num_tokens, num_q_heads, head_dim_qk]
  std::vector<float> k;               // [num_kv_tokens, num_kv_heads, head_dim_qk], ordered by request
  std::vector<float> v;               // [num_kv_tokens, num_kv_heads, head_dim_v]
  std::vector<float> sinks;           // [num_q_heads], or empty
  std::vector<int64_t> cu_seqlen_kv;  // [num_reqs + 1]: first row of each request in k and v
};

class BuiltCase {
 public:
  explicit BuiltCase(const AttentionCase& c);
  BuiltCase(const BuiltCase&) = delete;
  BuiltCase& operator=(const BuiltCase&) = delete;

  const AttentionCase spec;
  const NewTokens tokens;
  const CaseIndex index;
  const CaseValues values;
  // Views of memory that the case owns. For MLA, `args` is the same problem as multi-query attention: q and
  // q_rope concatenated, the latent row as K, and its first part as V.
  kernels::AttentionArgs args;
  kernels::MlaArgs mla_args;

  void poison_results();
  // Returns true if nothing between and around the results was written.
  bool gaps_untouched() const;
  // Bytes of out and lse.
  std::vector<unsigned char> result_bytes() const;

 private:
  void make_queries();
  void make_pool();
  void make_latent_pool();
  void store_kv();
  void make_results();
  void make_head_scales();
  void make_mla_args();

  std::vector<float> head_scales_;
  Tensor q_, k_, v_, out_, lse_;
};

}  // namespace attend::conformance
