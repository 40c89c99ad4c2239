// ModelDrafter: drafts the most likely tokens of a smaller model, or of a draft head.
#pragma once

#include <vector>

#include "attend/engine/speculation/draft_group.h"
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
    int length;     // tokens to predict
    int row = 0;    // of the logits of the last launch that predicted a token
    int token = 0;  // its index in that launch
  };
  // Part of a request that the target computed in the last step.
  struct Computed {
    const Request* request;
    RequestRow row;
    int begin, end;    // positions
    int first_hidden;  // row of hidden_ of the first one
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
  void add_chain(const ScheduledRequest& part, int length);
  // Number of tokens of a draft, limited by `num_left` tokens of the step.
  int chain_length(const ScheduledRequest& part, int num_left) const;
  // Number of positions of the draft that a request's known tokens fill.
  int num_known(const Request& request) const { return request.num_tokens() - shift_; }
  // Adds the positions without K/V among the first `num_positions` to the first launch, as far as they fit.
  // With `predicts`, the last of them has logits. Returns whether all of them are in the launch.
  bool catch_up(const Request& request, int num_positions, bool predicts);
  // The same for a draft head.
  bool catch_up(const Computed& computed, bool predicts);
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
  // Launches the batch and predicts token `idx` of the chain of each row of logits.
  void launch(int idx);
  // Passes the tokens to the requests and records the K/V.
  void collect();
  // Tokens of index `idx` of all chains, by row of logits.
  TensorView predicted(int idx) const { return tokens_.view().slice(0, idx, idx + 1).reshape({max_rows_}); }

  Executor& executor_;
  DraftGroup& group_;
  int shift_;          // 1 for a draft head, else 0
  int vocab_size_;     // of both models
  int max_positions_;  // of the draft model
  int max_reqs_;       // requests of a step with drafts
  int64_t max_rows_;   // of logits
  Tensor tokens_;      // int32 [num_steps, max_rows] in host memory that the device accesses
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
