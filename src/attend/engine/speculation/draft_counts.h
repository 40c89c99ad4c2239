// DraftCounts: what speculative decoding has gained, of a request or of all.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace attend {

struct DraftCounts {
  int64_t num_steps = 0;     // that gave a request tokens behind its first; those of several requests add up
  int64_t num_drafted = 0;   // tokens that were drafted for them
  int64_t num_accepted = 0;  // and that the model chose too

  void add(int drafted, int accepted) {
    ++num_steps;
    num_drafted += drafted;
    num_accepted += accepted;
  }
  DraftCounts operator-(const DraftCounts& before) const {
    return {num_steps - before.num_steps, num_drafted - before.num_drafted,
            num_accepted - before.num_accepted};
  }
  // Tokens that a step gave, on average: 1 without drafts; 0: there was no step.
  double accept_length() const {
    return num_steps == 0 ? 0.0 : 1.0 + static_cast<double>(num_accepted) / static_cast<double>(num_steps);
  }
  // Of drafted tokens; 0: there were none.
  double accept_rate() const {
    return num_drafted == 0 ? 0.0 : static_cast<double>(num_accepted) / static_cast<double>(num_drafted);
  }
};

}  // namespace attend
#pragma GCC visibility pop
