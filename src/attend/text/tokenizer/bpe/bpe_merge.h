// The heart of byte pair encoding: merging the symbols of a word by rank.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/text/tokenizer/bpe/pair_table.h"

namespace attend::tokenizer {

// The merge rules. Rank 0 is applied first.
class MergeRules {
 public:
  MergeRules() = default;
  explicit MergeRules(size_t max_rules) : ranks_(max_rules) { merged_.reserve(max_rules); }

  // Adds the rule of the next rank. A pair that comes twice has its last rank.
  void add(int32_t left, int32_t right, int32_t merged) {
    ranks_.set(static_cast<uint32_t>(left), static_cast<uint32_t>(right),
               static_cast<uint32_t>(merged_.size()));
    merged_.push_back(merged);
  }

  static constexpr uint32_t kNoRule = PairTable::kNone;
  uint32_t rank(int32_t left, int32_t right) const {
    return ranks_.get(static_cast<uint32_t>(left), static_cast<uint32_t>(right));
  }
  int32_t merged(uint32_t rank) const { return merged_[rank]; }

 private:
  PairTable ranks_;
  std::vector<int32_t> merged_;
};

// Replaces pairs of neighbors by what they merge into, lowest rank first and leftmost first among equals,
// until no rule applies. O(n log n) in the number of symbols; short words take a simpler, quadratic way to
// the same result.
void merge_symbols(const MergeRules& rules, std::vector<int32_t>& symbols);

}  // namespace attend::tokenizer
