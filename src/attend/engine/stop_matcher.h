// StopMatcher: finds stop strings in a growing text, and holds back what may become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Text handed out never contains a stop string, nor the start of one that later text completes.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Appends text; returns the part that is safe to hand out now. After a match returns what stood before the
  // first stop string, and nothing from then on.
  std::string push(std::string_view text);
  // The held-back rest, when the text ends without a match.
  std::string flush();
  bool matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // text that may be the start of a stop string
  bool matched_ = false;
};

}  // namespace attend
