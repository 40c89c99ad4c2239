// ModelDrafter: drafts the most likely tokens of a smaller model, or of a draft head.
#pragma once

#include <vector>

#include "attend/engine/speculation/draft_group.h"
#include "attend/engine/speculation/draft_tree.h"
#include "attend/engine/speculation/drafter.h"
#include "attend/exec/executor.h"

namespace attend {

// A round of a request with n tokens:
//   - Catch-up: one step of the draft model computes the tokens that have no K/V yet, at least token n - 1.
//     After a round that predicted k tokens, of which a were accepted, these are 1 token, or 2 if a = k.
//   - The first drafted token is the argmax of the logits of token n - 1. A decode step for each further one
//     reads the token before it from the device's memory, so that the host waits only once per round.
// The last drafted token has no K/V yet. It is computed in the next round if it is accepted.
//
// A draft head (ModelSpec::draft) has token i + 1 and the hidden state of token i at position i, so all
// positions above are one lower: the catch-up ends with token n - 1 at position n - 2. It reads the target's
// hidden states, which the step before returned, of all of that step's tokens, also of those whose K/V the
// head computed from its own hidden states when it drafted them. A decode step reads the state of the step
// before it. Requests without drafts are caught up too, since the hidden states are lost afterwards.
//
// With eagle_topk above 1, drafts are trees (DraftTree) in steps without prompts. After the catch-up, each
// step computes all nodes of the tree so far, in token slots after the request's last token and with a tree
// mask; the host makes the next level of the tree from the most likely tokens of each step. Nothing that it
// computed is kept: tokens that are accepted are computed again in the next catch-up, at their positions.
//
// A longer part of a prompt is computed in several rounds of at most limits().max_tokens tokens. Until its
// end, the request has no drafts. Prompts that the target computes in chunks are followed chunk by chunk.
class ModelDrafter final : public Drafter {
 public:
  // `executor`: the draft model, over the rows and slots of the target; may be loaded later. `group`: its
  // cache group, which RequestMemory owns. `vocab_size`: the target's. Both references must outlive this
  // object.
  ModelDrafter(Executor& executor, DraftGroup& group, int vocab_size, const SpeculativeOptions& options);

  void draft(const ScheduledStep& step) override;
  void observe(const ScheduledStep& step, const TensorView& hidden_states) override;
  void end(const Request& request) override;
  bool reads_hidden_states() const override { return shift_ > 0; }
  // Drafts have a fixed length, as in SGLang: a shorter one saves little.
  bool chooses_length() const override { return true; }
  double device_seconds() const override { return device_seconds_; }

 private:
  // Request with a draft.
  struct Chain {
    Request* request;
    int length;               // tokens to predict after one another
    int num_tokens;           // tokens to predict in total
    int topk;                 // candidates per token
    int row = 0;              // first row of the logits of the last launch that predicted a token
    int token = 0;            // token of this row in that launch; of trees the request's first one
    bool is_computed = true;  // trees: the last launch computed nodes
  };
  // Part of a request that the target computed in the last step.
  struct Computed {
    const Request* request;
    RequestRow row;
    int begin;     // first position
    int num_kept;  // positions with K/V of the target
    // Positions up to it have hidden states. Those after the first num_kept are of accepted tokens of a tree,
    // which the target computes again.
    int end;
    int first_hidden;               // row of hidden_ of the first position; num_kept rows are adjacent
    std::vector<int> other_hidden;  // of the other positions
  };
  // Adjacent rows of a launch that the next one reads, from its token `to` on.
  struct Run {
    int from = 0, to = 0, count = 0;
    int end() const { return from + count; }
    // Returns false if the row is not the next one.
    bool add(int row) {
      if (count == 0 || row != end()) return false;
      ++count;
      return true;
    }
  };
  // Request of the first launch without logits, and its number of first tokens with K/V after the launch.
  struct Follower {
    RequestRow row;
    int num_tokens;
  };

  void begin_batch(ForwardMode mode);
  // Adds catch-ups to the first launch: chains, and other requests.
  void add_requests(const ScheduledStep& step);
  void add_computed(const ScheduledStep& step);
  // Adds a request to the drafts and subtracts its tokens from `num_left` tokens of the step.
  void add_chain(const ScheduledRequest& part, int length, int& num_left);
  // Number of tokens of a draft after one another, limited by `num_left` tokens of the step.
  int chain_length(const ScheduledRequest& part, int num_left) const;
  bool has_tree(const ScheduledRequest& part, int num_left) const {
    return draws_trees_ && part.num_draft_slots >= tree_slots_ && num_left >= max_tree_tokens_;
  }
  // Number of positions of the draft that a request's known tokens fill.
  int num_known(const Request& request) const { return request.num_tokens() - shift_; }
  // Adds the positions without K/V among the first `num_positions` to the first launch, as far as they fit.
  // With `predicts`, the last of them has logits. Returns whether all of them are in the launch.
  bool catch_up(const Request& request, int num_positions, bool predicts);
  // The same for a draft head.
  bool catch_up(const Computed& computed, bool predicts);
  // Adds the hidden states of the positions [begin, end).
  void add_hidden_rows(const Computed& computed, int begin, int end);
  // Adds the positions [begin, end) of a request.
  void add_positions(const Request& request, int begin, int end, bool predicts);
  // Returns false if another request of the launch computes tokens of the pages of positions [begin, end),
  // which both share.
  bool claim_pages(RequestRow row, int begin, int end);
  bool is_claimed(RequestRow row, int position) const;
  ForwardMode first_mode() const;
  int longest() const;  // number of tokens of the longest chain
  // Makes the batch that computes drafted token idx - 1 of all chains with more than `idx` tokens.
  void build_decode(int idx);
  void launch();
  void draw_chains();
  void draw_trees();
  // Predicts token `idx` of the chain of each row of logits of the last launch.
  void predict(int idx);
  // Trees: waits for the last launch, and adds the most likely tokens of its rows to the trees.
  void add_levels(int level);
  // Makes the batch that computes the nodes of all trees with more than `level` levels.
  void build_tree_nodes(int level);
  // Draft heads: copies the hidden states that the nodes of the tree's last level read, from the last launch.
  void keep_states(size_t tree, int level);
  // Hidden states that nodes [begin, end) of a tree read.
  TensorView tree_states(size_t tree, int begin, int end);
  // Model::head_tokens() in host memory.
  View<const int32_t> head_tokens();
  // Passes the tokens to the requests and records the K/V.
  void collect_chains();
  void collect_trees();
  // Tokens of index `idx` of all chains, by row of logits.
  TensorView predicted(int idx) const { return tokens_.view().slice(0, idx, idx + 1).reshape({max_rows_}); }

  Executor& executor_;
  DraftGroup& group_;
  int shift_;                         // 1 for a draft head, else 0
  int vocab_size_;                    // of both models
  int max_positions_;                 // of the draft model
  int max_reqs_;                      // requests of a step with drafts
  int64_t max_rows_;                  // of logits
  int num_steps_, topk_;              // of trees
  int tree_slots_, max_tree_tokens_;  // token slots and drafted tokens of a tree
  bool draws_trees_ = false;          // this round
  std::vector<DraftTree> trees_;      // one per chain
  // By row of logits, in host memory that the device accesses: number of most likely tokens, logarithm of the
  // sum of exponentials, and kernels::kMaxTopLogprobs entries.
  Tensor num_top_, log_sums_, tops_;
  // Draft heads: hidden states that nodes read, [requests, topk * (num_steps - 1), hidden_size].
  Tensor tree_states_;
  std::vector<int32_t> head_tokens_;  // GPUs
  std::vector<TokenLogprob> level_;   // of one tree
  Tensor tokens_;  // int32 [longest draft, max_rows] in host memory that the device accesses
  ExecutorBatch batch_;
  std::vector<Chain> chains_;
  int room_ = 0;  // tokens that still fit into the first launch
  std::vector<Follower> followers_;
  std::vector<Computed> computed_;  // draft heads
  TensorView hidden_;               // of the target's last step
  ExecutorOutput output_;           // of the last launch
  std::vector<int64_t> claims_;     // by page: last round that computed some of its tokens
  int64_t round_ = 0;
  double device_seconds_ = 0.0;
};

}  // namespace attend
