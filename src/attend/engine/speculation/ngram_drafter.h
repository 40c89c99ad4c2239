// NgramDrafter: drafts what followed the request's last tokens where the same stood before, in its prompt or
// answer (prompt lookup: Saxena, 2023; vLLM and SGLang call it ngram).
#pragma once

#include <cstdint>
#include <span>

#include "attend/engine/speculation/drafter.h"

namespace attend {

// Of the tokens' last n, with the largest n in [min_match, max_match] that stands before too: what follows it
// there, at most `most` tokens. Of several places the last one that so many tokens follow; if none has, the
// first one, which more follow than any other. Empty: there is none. Views `tokens`.
std::span<const int32_t> find_continuation(std::span<const int32_t> tokens, int min_match, int max_match,
                                           int most);

class NgramDrafter final : public Drafter {
 public:
  NgramDrafter(int min_match, int max_match) : min_match_(min_match), max_match_(max_match) {}
  void draft(const ScheduledStep& step) override;

 private:
  int min_match_, max_match_;
};

}  // namespace attend
