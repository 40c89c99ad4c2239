// SyntheticAcceptance: number of drafted tokens that benches accept, whatever the tokens are.
#pragma once

#include <algorithm>

namespace attend {

// Models with random weights accept no drafts, or all of them. Benches of such models time rounds in which a
// given number of tokens is accepted.
class SyntheticAcceptance {
 public:
  // `accept_length`: mean number of tokens that a verification yields, at least 1.
  explicit SyntheticAcceptance(double accept_length) : accepted_(accept_length - 1.0) {}

  // Returns the number of accepted tokens of the next draft of `num_drafted` tokens. Their mean is
  // accept_length - 1, less what drafts are too short for.
  int next(int num_drafted) {
    due_ += accepted_;
    const int num = std::min(num_drafted, static_cast<int>(due_));
    due_ = std::min(due_ - num, 1.0);
    return num;
  }

 private:
  double accepted_, due_ = 0.0;
};

}  // namespace attend
