#include "attend/engine/speculation/draft_tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attend {

void DraftTree::begin(int topk) {
  topk_ = topk;
  candidates_.clear();
  nodes_.clear();
  node_candidates_.clear();
  first_last_node_ = 0;
}

void DraftTree::add_level(std::span<const TokenLogprob> tops, int vocab_size) {
  const bool is_first = candidates_.empty();
  const auto first_candidate = static_cast<int>(candidates_.size());
  std::vector<int> node_of;  // node that each new candidate follows
  for (size_t i = 0; i < tops.size(); ++i) {
    const auto& [id, logprob] = tops[i];
    if (id < 0 || id >= vocab_size || !std::isfinite(logprob)) continue;
    const int node = is_first ? -1 : first_last_node_ + static_cast<int>(i) / topk_;
    const int parent = is_first ? -1 : node_candidates_[static_cast<size_t>(node)];
    const float before = is_first ? 0.0f : candidates_[static_cast<size_t>(parent)].score;
    // Rounding must not make a path more likely than its start.
    candidates_.push_back({.token = id, .parent = parent, .score = before + std::min(logprob, 0.0f)});
    node_of.push_back(node);
  }
  std::vector<int> order(candidates_.size() - static_cast<size_t>(first_candidate));
  std::iota(order.begin(), order.end(), first_candidate);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int idx) { return candidates_[static_cast<size_t>(idx)].score; });
  order.resize(std::min(order.size(), static_cast<size_t>(topk_)));
  first_last_node_ = static_cast<int>(nodes_.size());
  for (const int idx : order) {
    nodes_.push_back({.token = candidates_[static_cast<size_t>(idx)].token,
                      .parent = node_of[static_cast<size_t>(idx - first_candidate)]});
    node_candidates_.push_back(idx);
  }
}

void DraftTree::select(int num_tokens, RequestDraft& draft) const {
  std::vector<int> order(candidates_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int idx) { return candidates_[static_cast<size_t>(idx)].score; });
  order.resize(std::min(order.size(), static_cast<size_t>(num_tokens)));
  // Depth first. The next tokens after one are adjacent in `order` only by their scores, so each one is
  // searched.
  draft.tokens.clear();
  draft.parents.clear();
  const auto add_after = [&](const auto& self, int parent, int parent_idx) -> void {
    for (const int idx : order) {
      const Candidate& candidate = candidates_[static_cast<size_t>(idx)];
      if (candidate.parent != parent) continue;
      const auto drafted = static_cast<int>(draft.tokens.size());
      draft.tokens.push_back(candidate.token);
      draft.parents.push_back(parent_idx);
      self(self, idx, drafted);
    }
  };
  add_after(add_after, -1, -1);
}

}  // namespace attend
