// SuffixTree: counts how often each run of tokens occurs in a set of sequences, and predicts the tokens after
// a text from these counts (SuffixDecoding: Oliaro et al., arXiv 2411.04975).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "attend/engine/speculation/child_index.h"

namespace attend {

// Limits of a prediction.
struct SuffixLimits {
  int max_tokens = 0;
  double max_match_factor = 1.0;  // at most this number of tokens per token of the match
  double min_probability = 0.0;   // of the predicted tokens together
};

struct SuffixPrediction {
  std::vector<int32_t> tokens;
  int num_matched = 0;  // last tokens of the text that were found
  // Sum of the probabilities of the predicted tokens, each including those before it: the expected number of
  // accepted tokens.
  double score = 0.0;
};

// The tree holds, for every position of every sequence, the run of at most max_depth tokens that begins there
// (a suffix, cut to that depth). Suffixes with equal first tokens share a path from the root; a node is a
// part of paths in which no suffix ends or leaves, and counts the suffixes that pass through it. Every suffix
// ends at the end of a node, so there are at most two nodes per token, whatever the sequences contain.
//
// append() costs O(max_depth): the last max_depth suffixes of the sequence become one token longer. Sequences
// are removed in the order of begin(), at the same cost per token.
class SuffixTree {
 public:
  explicit SuffixTree(int max_depth);

  // Begins an empty sequence and returns its number. Later sequences have larger numbers.
  int64_t begin();
  // Appends a token to a sequence, which need not be the last one. Token ids are 0 or more.
  void append(int64_t sequence, int32_t token);
  // Removes the sequence with the smallest number.
  void remove_oldest();
  bool has(int64_t sequence) const { return sequence >= first_sequence_ && sequence < end_sequence(); }

  // Predicts the tokens after `text`. For each number of last tokens that occur in the sequences, it follows
  // the most frequent continuation, and the last added one of equally frequent ones; it returns the
  // continuation with the best score, and of equal scores the one of the longest match. The probability of a
  // token is its share of the continuations of the run before it. Only the last max_depth - 1 tokens of
  // `text` are read.
  SuffixPrediction predict(std::span<const int32_t> text, const SuffixLimits& limits) const;

  // Number of positions at which these tokens occur, at most max_depth of them.
  int count(std::span<const int32_t> tokens) const;

  int max_depth() const { return max_depth_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_sequences() const { return std::ssize(sequences_); }
  int64_t num_nodes() const { return std::ssize(nodes_) - std::ssize(free_nodes_); }
  // Memory of nodes, index and tokens, as allocated.
  size_t num_bytes() const;

 private:
  static constexpr int32_t kRoot = 0, kNone = ChildIndex::kNone;

  struct Node {
    // The node's tokens, in a sequence that contains its path. It is the last one that does, so that the
    // label remains valid when older sequences are removed.
    int64_t sequence = 0;
    int32_t start = 0, length = 0;
    int32_t token = 0;     // the first one
    int32_t count = 0;     // suffixes that pass through the node
    int32_t num_ends = 0;  // subset: suffixes that end here
    int32_t parent = kNone, first_child = kNone;
    // Siblings are ordered by count, largest first. `prev` of the first one is the last one.
    int32_t prev = kNone, next = kNone;
    int32_t run = kNone;  // index into runs_
  };
  // Siblings with equal counts. A count that changes by one moves its node to the next run in constant time.
  struct Run {
    int32_t first = kNone, last = kNone;
  };
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<int32_t> ends;  // node at which the suffix from each position ends
  };
  // A place in the tree: after the first `offset` tokens of a node.
  struct Place {
    int32_t node = kRoot;
    int32_t offset = 0;
  };

  int64_t end_sequence() const { return first_sequence_ + num_sequences(); }
  Node& node(int32_t id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  Run& run(int32_t id) { return runs_[static_cast<size_t>(id)]; }
  int32_t label_token(const Node& node, int32_t offset) const;
  bool has_one_child(const Node& node) const;

  // Moves a suffix that ends at `from` to the next token, at `position` of the sequence. Returns its new end.
  int32_t extend(int32_t from, int64_t sequence, int32_t position, int32_t token);
  void remove_suffix(int32_t end);
  // Separates the first token of a node; returns the new node above it.
  int32_t split(int32_t id);
  // Joins a node without ends to its parent if no suffix ends or leaves in between.
  void merge_into_child(int32_t id);

  int32_t add_node(const Node& node);
  int32_t add_run(int32_t id);
  void add_leaf(int32_t parent, const Node& leaf, int32_t& id);
  void increment(int32_t id);
  void decrement(int32_t id);
  void remove_leaf(int32_t id);
  void remove_from_run(int32_t id);
  void unlink(int32_t id);
  // Places a node among its siblings, directly before or after `place`.
  void link_before(int32_t id, int32_t place);
  void link_after(int32_t id, int32_t place);
  // Puts a node in the place of another one with the same count.
  void replace(int32_t before, int32_t by);

  // Continues a place by one token. Returns false if no suffix continues so.
  bool follow(Place& place, int32_t token) const;
  // Continues by the most frequent token and returns its probability; 0: no suffix continues.
  double follow_best(Place& place, int32_t& token) const;

  const int max_depth_;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_nodes_;
  std::vector<Run> runs_;
  std::vector<int32_t> free_runs_;
  ChildIndex children_;
  std::deque<Sequence> sequences_;
  int64_t first_sequence_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace attend
