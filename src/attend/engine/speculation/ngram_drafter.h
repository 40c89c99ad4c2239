// NgramDrafter: drafts the tokens that followed an earlier occurrence of the request's last tokens, in its
// prompt or answer (prompt lookup: Saxena, 2023; vLLM and SGLang call it ngram).
#pragma once

#include <cstdint>
#include <span>

#include "attend/engine/speculation/drafter.h"

namespace attend {

// Finds the largest n in [min_match, max_match] for which the last n tokens also occur earlier, and returns
// the tokens after that occurrence, at most `max_tokens`. Among several occurrences it prefers the last one
// that `max_tokens` tokens follow; if there is none, the one that the most tokens follow. Returns an empty
// span without an occurrence. The result is a view of `tokens`.
std::span<const int32_t> find_continuation(std::span<const int32_t> tokens, int min_match, int max_match,
                                           int max_tokens);

class NgramDrafter final : public Drafter {
 public:
  NgramDrafter(int min_match, int max_match) : min_match_(min_match), max_match_(max_match) {}
  void draft(const ScheduledStep& step) override;

 private:
  int min_match_, max_match_;
};

}  // namespace attend
