// SuffixDrafter: drafts the most frequent continuation of the request's last tokens, in its own text and in
// the outputs of all requests (SuffixDecoding, arXiv 2411.04975).
#pragma once

#include <optional>
#include <unordered_map>

#include "attend/engine/speculation/drafter.h"
#include "attend/engine/speculation/suffix_tree.h"

namespace attend {

// Each request has a tree of its prompt and output. One more tree holds the outputs of running and past
// requests, of which the oldest are removed. A draft comes from the tree whose prediction has the better
// score. A step costs O(max_tree_depth) per new token and O(max_tree_depth^2) per draft, however long the
// texts are.
class SuffixDrafter final : public Drafter {
 public:
  // A tree needs at most kBytesPerToken for each of its tokens, apart from unused capacity of its arrays.
  static constexpr int kBytesPerToken = 152;
  // Tokens of the tree of all outputs, and of all trees of requests together.
  static constexpr int64_t kMaxSharedTokens = int64_t{1} << 19, kMaxOwnTokens = int64_t{1} << 19;
  // A request's tree omits tokens before this number of last tokens of the prompt.
  static constexpr int kMaxPromptTokens = 1 << 16;
  // Tokens that a step adds to the trees of requests. The trees of long prompts are complete after several
  // steps, so that no step takes long.
  static constexpr int kMaxAddedPerStep = 2048;

  struct Limits {
    int64_t shared_tokens = kMaxSharedTokens, own_tokens = kMaxOwnTokens;
    int prompt_tokens = kMaxPromptTokens, added_per_step = kMaxAddedPerStep;
  };

  explicit SuffixDrafter(const SuffixOptions& options) : SuffixDrafter(options, Limits()) {}
  SuffixDrafter(const SuffixOptions& options, const Limits& limits);

  void draft(const ScheduledStep& step) override;
  bool chooses_length() const override { return true; }
  void end(const Request& request) override;

  const SuffixTree& shared() const { return shared_; }
  int64_t num_own_tokens() const { return num_own_tokens_; }
  int64_t num_requests() const { return std::ssize(texts_); }

 private:
  struct Text {
    std::optional<SuffixTree> own;  // with one sequence; none before the first draft
    int own_end = 0;                // tokens of the request that `own` and omitted tokens cover
    int64_t shared_sequence = -1;
    int shared_end = 0;  // tokens of the request that are in the shared tree; 0: none
  };

  void add_output(const Request& request, Text& text);
  void add_own(const Request& request, Text& text, int& budget);
  SuffixPrediction predict(const Request& request, const Text& text, int max_tokens) const;

  const SuffixOptions options_;
  const Limits limits_;
  SuffixTree shared_;
  std::unordered_map<RequestId, Text> texts_;
  int64_t num_own_tokens_ = 0;
};

}  // namespace attend
