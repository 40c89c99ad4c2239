// LogitsProcessor: edits of one request's logits by its parameters: penalties, biases, and banned tokens.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "attend/engine/generation_request.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend {

class LogitsProcessor {
 public:
  // Returns whether these parameters change any logit.
  static bool needed(const SamplingParams& params);

  // `stop_ids`: token ids that end the request.
  LogitsProcessor(const SamplingParams& params, std::span<const int32_t> prompt,
                  std::span<const int32_t> stop_ids);

  // Updates the edits for a sampled token. Takes constant time, except for the token that reaches min_tokens.
  void accept(int32_t token_id);
  // Lifts min_tokens if the next token's mask allows only tokens that end the request: the grammar is
  // complete.
  void apply_mask(std::span<const uint32_t> words);
  // Edits for the next token, at most one per token id.
  std::span<const kernels::LogitEdit> edits() const { return edits_; }

 private:
  struct State {
    int num_output = 0;
    bool in_prompt = false, banned = false;
    float bias = 0.0f;
  };
  // Returns the index of the token's edit; adds one if there is none.
  size_t find_edit(int32_t token_id);
  void update(size_t edit_idx);
  bool bans(int32_t token_id) const;
  void allow_stop_tokens();

  float repetition_, frequency_, presence_;
  int num_tokens_until_stop_;                  // tokens until stop tokens are allowed
  std::unordered_map<int32_t, size_t> index_;  // token id -> index into edits_ and states_
  std::vector<kernels::LogitEdit> edits_;
  std::vector<State> states_;
};

}  // namespace attend
