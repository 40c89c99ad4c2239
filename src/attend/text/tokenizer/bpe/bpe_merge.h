// Core of byte pair encoding: merges the symbols of a word by rank.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/text/tokenizer/bpe/pair_table.h"

namespace attend::tokenizer {

// Merge rules. Rank 0 is applied first.
class MergeRules {
 public:
  MergeRules() = default;
  explicit MergeRules(size_t max_rules) : ranks_(max_rules) { merged_.reserve(max_rules); }

  // Adds the rule with the next rank. If a pair occurs twice, the last rank wins.
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

// Replaces neighboring pairs by their merged symbol, lowest rank first and leftmost first among equal ranks,
// until no rule applies. O(n log n) in the number of symbols; short words use a simpler quadratic algorithm
// with the same result.
void merge_symbols(const MergeRules& rules, std::vector<int32_t>& symbols);

}  // namespace attend::tokenizer
