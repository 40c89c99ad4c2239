// LogitsProcessor: what one request's parameters do to its logits: penalties, biases, and tokens that may not
// come yet.
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
  // Whether these parameters change any logit.
  static bool needed(const SamplingParams& params);

  // `stop_ids`: the tokens that end the request.
  LogitsProcessor(const SamplingParams& params, std::span<const int32_t> prompt,
                  std::span<const int32_t> stop_ids);

  // The next token was chosen. In constant time, but for the one that reaches min_tokens.
  void accept(int32_t token_id);
  // min_tokens ends where the next token's mask leaves nothing but tokens that end the request: a grammar
  // that is complete has no more to say.
  void apply_mask(std::span<const uint32_t> words);
  // For the next token, each token once.
  std::span<const kernels::LogitEdit> edits() const { return edits_; }

 private:
  struct State {
    int num_output = 0;
    bool in_prompt = false, banned = false;
    float bias = 0.0f;
  };
  // Of a token that has an edit, or gets one.
  size_t find_edit(int32_t token_id);
  void update(size_t edit_idx);
  bool bans(int32_t token_id) const;
  void allow_stop_tokens();

  float repetition_, frequency_, presence_;
  int num_tokens_until_stop_;                  // tokens until those that end the request may come
  std::unordered_map<int32_t, size_t> index_;  // of edits_ and states_
  std::vector<kernels::LogitEdit> edits_;
  std::vector<State> states_;
};

}  // namespace attend
