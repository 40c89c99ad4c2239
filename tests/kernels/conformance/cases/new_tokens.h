// The new tokens of a case: how they are batched, where they stand, and how their tree looks.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/conformance/cases/attention_case.h"

namespace attend::conformance {

// Pad requests come last; pad tokens after the tokens of all requests. What no kernel may read of a pad token
// (its mask, its position) is poisoned.
struct NewTokens {
  explicit NewTokens(const AttentionCase& c);

  std::vector<int32_t> cu_seqlen_q;  // [num_reqs + 1]
  std::vector<int32_t> seqlen_kv;    // [num_reqs]
  std::vector<int32_t> positions;    // [num_tokens]
  std::vector<uint64_t> tree_mask;   // [num_tokens, tree_mask_words]; empty: no tree
  int tree_mask_words = 0;
};

// The positions of a request that its queries may see: [first, end). Tree masks may leave out some of them.
struct PositionRange {
  int32_t first = 0, end = 0;
  bool contains(int32_t p) const { return first <= p && p < end; }
};
PositionRange unmasked_range(const AttentionCase& c, const NewTokens& tokens, int request);

}  // namespace attend::conformance
