#include "attend/text/tokenizer/bpe/bpe_merge.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <queue>

namespace attend::tokenizer {
namespace {

// Words up to this size are merged by scanning all pairs, which is as fast as a heap (measured: any value
// from 24 to 128 is equally good).
constexpr size_t kMaxScanned = 48;

void merge_by_scanning(const MergeRules& rules, std::vector<int32_t>& symbols) {
  // ranks[i]: rank of the rule for symbols i and i + 1
  std::array<uint32_t, kMaxScanned> ranks;
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rules.rank(symbols[i], symbols[i + 1]);
  while (n > 1) {
    const size_t at =
        static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + (n - 1)) - ranks.begin());
    if (ranks[at] == MergeRules::kNoRule) break;
    symbols[at] = rules.merged(ranks[at]);
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(at + 2),
              symbols.begin() + static_cast<std::ptrdiff_t>(n),
              symbols.begin() + static_cast<std::ptrdiff_t>(at + 1));
    std::copy(ranks.begin() + at + 1, ranks.begin() + (n - 1), ranks.begin() + at);
    --n;
    if (at > 0) ranks[at - 1] = rules.rank(symbols[at - 1], symbols[at]);
    if (at + 1 < n) ranks[at] = rules.rank(symbols[at], symbols[at + 1]);
  }
  symbols.resize(n);
}

// Word as a linked list, with a heap of merges that were possible when they were pushed.
class HeapMerge {
 public:
  HeapMerge(const MergeRules& rules, const std::vector<int32_t>& symbols)
      : rules_(rules), nodes_(symbols.size()) {
    for (size_t i = 0; i < symbols.size(); ++i) {
      nodes_[i] = {symbols[i], static_cast<int32_t>(i) - 1,
                   i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1};
    }
    for (size_t i = 0; i + 1 < symbols.size(); ++i) push(static_cast<int32_t>(i));
  }

  void run(std::vector<int32_t>& symbols) {
    while (!heap_.empty()) {
      const uint64_t top = heap_.top();
      heap_.pop();
      merge(static_cast<uint32_t>(top >> 32), static_cast<int32_t>(top & 0xFFFFFFFF));
    }
    symbols.clear();
    for (int32_t i = 0; i != -1; i = node(i).next) symbols.push_back(node(i).symbol);
  }

 private:
  struct Node {
    int32_t symbol;  // -1: merged into the previous node
    int32_t previous;
    int32_t next;  // -1: none
  };

  Node& node(int32_t i) { return nodes_[static_cast<size_t>(i)]; }

  void push(int32_t left) {
    const uint32_t rank = rules_.rank(node(left).symbol, node(node(left).next).symbol);
    if (rank != MergeRules::kNoRule) heap_.push(uint64_t{rank} << 32 | static_cast<uint32_t>(left));
  }

  void merge(uint32_t rank, int32_t at) {
    Node& left = node(at);
    if (left.symbol == -1 || left.next == -1) return;
    // The pair at this position may have changed since it was pushed.
    const uint32_t rank_now = rules_.rank(left.symbol, node(left.next).symbol);
    if (rank_now == MergeRules::kNoRule || rules_.merged(rank_now) != rules_.merged(rank)) return;
    Node& right = node(left.next);
    left.symbol = rules_.merged(rank);
    left.next = right.next;
    right.symbol = -1;
    if (left.next != -1) node(left.next).previous = at;
    if (left.previous != -1) push(left.previous);
    if (left.next != -1) push(at);
  }

  const MergeRules& rules_;
  std::vector<Node> nodes_;
  // rank << 32 | position; the smallest is the next merge
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap_;
};

}  // namespace

void merge_symbols(const MergeRules& rules, std::vector<int32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kMaxScanned) {
    merge_by_scanning(rules, symbols);
  } else {
    HeapMerge(rules, symbols).run(symbols);
  }
}

}  // namespace attend::tokenizer
