// ModelDrafter: drafts the most likely tokens of a smaller model.
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
// A longer part of a prompt is computed in several rounds of at most limits().max_tokens tokens. Until its
// end, the request has no drafts. Prompts that the target computes in chunks are followed chunk by chunk.
class ModelDrafter final : public Drafter {
 public:
  // `executor`: the draft model, over the rows and slots of the target; may be loaded later. `group`: its
  // cache group, which RequestMemory owns. `vocab_size`: the target's. Both references must outlive this
  // object.
  ModelDrafter(Executor& executor, DraftGroup& group, int vocab_size, const SpeculativeOptions& options);

  void draft(const ScheduledStep& step) override;
  // Drafts have a fixed length, as in SGLang: a shorter one saves little.
  bool chooses_length() const override { return true; }
  double device_seconds() const override { return device_seconds_; }

 private:
  // Request with a draft.
  struct Chain {
    Request* request;
    int length;   // tokens to predict
    int row = 0;  // of the logits of the last launch that predicted a token
  };
  // Request of the first launch without logits, and its number of first tokens with K/V after the launch.
  struct Follower {
    RequestRow row;
    int num_tokens;
  };

  void begin_batch(ForwardMode mode);
  // Adds the tokens without K/V among the first `num_tokens` to the first launch, as far as they fit. With
  // `predicts`, the last of them has logits. Returns whether all of them are in the launch.
  bool catch_up(const Request& request, int num_tokens, bool predicts);
  // Returns false if another request of the launch computes tokens of the pages of positions [begin, end),
  // which both share.
  bool claim_pages(RequestRow row, int begin, int end);
  ForwardMode first_mode() const;
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
  int vocab_size_;     // of both models
  int max_positions_;  // of the draft model
  int max_reqs_;       // requests of a step with drafts
  int64_t max_rows_;   // of logits
  Tensor tokens_;      // int32 [num_steps, max_rows] in host memory that the device accesses
  ExecutorBatch batch_;
  std::vector<Chain> chains_;
  int room_ = 0;  // tokens that still fit into the first launch
  std::vector<Follower> followers_;
  std::vector<int64_t> claims_;  // by page: last round that computed some of its tokens
  int64_t round_ = 0;
  double device_seconds_ = 0.0;
};

}  // namespace attend
