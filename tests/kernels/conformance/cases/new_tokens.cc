#include "tests/kernels/conformance/cases/new_tokens.h"

#include <algorithm>

#include "tests/kernels/conformance/cases/poison.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

// Appends the mask rows and positions of one request's tree. Every token attends to its ancestors and itself;
// its position is its parent's plus one.
void append_tree(const AttentionCase& c, int seqlen_q, int32_t prefix, Random& random, NewTokens& tokens) {
  const auto words = static_cast<size_t>(tokens.tree_mask_words);
  const size_t first_row = tokens.positions.size();
  for (int j = 0; j < seqlen_q; ++j) {
    const bool root = j == 0;
    const int parent = root || c.tree == TreeShape::kChain ? j - 1 : random.below(j);
    std::vector<uint64_t> row(words, 0);
    int32_t position = prefix;
    if (!root) {
      const size_t parent_row = first_row + static_cast<size_t>(parent);
      std::copy_n(tokens.tree_mask.begin() + static_cast<std::ptrdiff_t>(parent_row * words), words,
                  row.begin());
      position = tokens.positions[parent_row] + 1;
    }
    row[static_cast<size_t>(j) / 64] |= uint64_t{1} << (j % 64);
    tokens.tree_mask.insert(tokens.tree_mask.end(), row.begin(), row.end());
    tokens.positions.push_back(position);
  }
}

// First visible key of a query at position p that attends to any key, as the design defines it: a window of w
// keys includes the query's own key, and a chunk starts at a multiple of its length.
int32_t first_key(const AttentionCase& c, int32_t p) {
  int32_t first = 0;
  if (c.window_left >= 0) first = std::max(first, p + 1 - (c.window_left + 1));
  if (c.chunk > 0 && p >= 0) first = std::max(first, p - p % c.chunk);
  return first;
}

// End of the keys that a query at position p attends to without a tree mask. A chunk ends where the next one
// starts; chunks at positions below 0 contain no key.
int64_t end_of_keys(const AttentionCase& c, int32_t p, int32_t seqlen_kv) {
  int64_t end = std::min<int64_t>(seqlen_kv, int64_t{p} + 1 + c.window_right);
  if (c.chunk > 0 && p < 0) return 0;
  if (c.chunk > 0 && c.window_right > 0) end = std::min<int64_t>(end, p - p % c.chunk + int64_t{c.chunk});
  return end;
}

}  // namespace

NewTokens::NewTokens(const AttentionCase& c) {
  if (c.tree != TreeShape::kNone) tree_mask_words = std::max(1, (c.max_seqlen_q() + 63) / 64);
  std::vector<Lengths> requests = c.requests;
  requests.insert(requests.end(), static_cast<size_t>(c.num_pad_reqs), Lengths{c.pad_seqlen_q, 1});

  Random random(c.seed, /*stream=*/1);
  cu_seqlen_q.push_back(0);
  for (const auto& [seqlen_q, seqlen_kv_of_request] : requests) {
    cu_seqlen_q.push_back(cu_seqlen_q.back() + seqlen_q);
    seqlen_kv.push_back(seqlen_kv_of_request);
    const int32_t prefix = seqlen_kv_of_request - seqlen_q;
    if (c.tree != TreeShape::kNone)
      append_tree(c, seqlen_q, prefix, random, *this);
    else
      for (int j = 0; j < seqlen_q; ++j) positions.push_back(prefix + j);
  }
  positions.resize(static_cast<size_t>(c.num_tokens()), kHugeId);
  tree_mask.resize(positions.size() * static_cast<size_t>(tree_mask_words), ~uint64_t{0});
}

PositionRange unmasked_range(const AttentionCase& c, const NewTokens& tokens, int request) {
  const auto r = static_cast<size_t>(request);
  const int32_t seqlen_kv = tokens.seqlen_kv[r];
  const int32_t prefix = seqlen_kv - (tokens.cu_seqlen_q[r + 1] - tokens.cu_seqlen_q[r]);
  const bool tree = c.tree != TreeShape::kNone;
  PositionRange range{.first = seqlen_kv, .end = 0};
  for (int32_t token = tokens.cu_seqlen_q[r]; token < tokens.cu_seqlen_q[r + 1]; ++token) {
    const int32_t p = c.causal ? tokens.positions[static_cast<size_t>(token)] : seqlen_kv - 1;
    const int32_t end = tree ? seqlen_kv : static_cast<int32_t>(end_of_keys(c, p, seqlen_kv));
    if (end <= 0) continue;
    range.first = std::min(range.first, first_key(c, p));
    range.end = std::max(range.end, end);
  }
  // Positions of a tree's keys differ from their indices, so a window may keep any of them visible.
  if (tree) range.first = std::min(range.first, prefix);
  return range;
}

}  // namespace attend::conformance
