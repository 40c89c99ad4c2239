// BuiltCase: an AttentionCase in memory. What no kernel may read is poisoned: slots of the pool that no query
// sees hold NaN, entries of tables that no query needs hold huge ids.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kernels/attention/attention.h"
#include "tests/kernels/conformance/cases/attention_case.h"
#include "tests/kernels/conformance/cases/case_index.h"
#include "tests/kernels/conformance/cases/new_tokens.h"

namespace attend::conformance {

// What a model would hand over, rounded to the case's q_dtype. They depend on the seed and the shape alone,
// not on where the K/V lies.
struct CaseValues {
  explicit CaseValues(const AttentionCase& c);

  std::vector<float> q;               // [num_tokens, num_q_heads, head_dim_qk]
  std::vector<float> k;               // [num_kv_tokens, num_kv_heads, head_dim_qk], request after request
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
  // Views of memory that the case owns. In an MLA case `args` is the same problem as multi-query attention:
  // q and q_rope side by side, and the latent row as K, its first part as V.
  kernels::AttentionArgs args;
  kernels::MlaArgs mla_args;

  void poison_results();
  // Whether only results were written, nothing between and around them.
  bool gaps_untouched() const;
  // The bytes of out and lse.
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
