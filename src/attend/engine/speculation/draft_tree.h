// DraftTree: the most likely continuations of a request according to a draft model (EAGLE-2, arXiv
// 2406.16858).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/engine/request.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend {

// Level 1 has the `topk` most likely tokens after the request's last token. Each further level has the topk
// most likely tokens after each of the topk most likely paths of the level before. All of them are
// candidates; the most likely ones are the draft. The probability of a path is the product of those of its
// tokens, so every path of the draft starts at the request's last token.
class DraftTree {
 public:
  // Token that the draft model reads to predict the next level, with the index of the one before it among all
  // nodes; -1: the request's last token.
  struct Node {
    int32_t token;
    int parent;
  };

  void begin(int topk);
  // Adds a level. `tops`: topk tokens after the request's last token, or after each of last_nodes(), in
  // descending order of their probability. Entries without a token (id below 0), without a number, or with
  // ids from `vocab_size` on are ignored.
  void add_level(std::span<const TokenLogprob> tops, int vocab_size);

  // Nodes of all levels, in the order of levels: the topk most likely paths of each one.
  std::span<const Node> nodes() const { return nodes_; }
  // Number of nodes of the last level; 0: there are no more candidates.
  int num_last_nodes() const { return static_cast<int>(nodes_.size()) - first_last_node_; }

  // Writes the `num_tokens` most likely candidates to the draft: each token before those after it, more
  // likely ones and all that follows them before less likely ones. Candidates of equal probability are in the
  // order in which they were added.
  void select(int num_tokens, RequestDraft& draft) const;

 private:
  struct Candidate {
    int32_t token;
    int parent;   // candidate; -1: the request's last token
    float score;  // log-probability of the path
  };

  int topk_ = 1;
  std::vector<Candidate> candidates_;
  std::vector<Node> nodes_;
  std::vector<int> node_candidates_;  // candidate of each node
  int first_last_node_ = 0;
};

}  // namespace attend
