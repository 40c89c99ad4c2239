// StopMatcher: finds stop strings in a growing text, and holds back what may become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Text handed out never contains a stop string (unless it is kept, at the end), nor the start of one that
// later text completes.
class StopMatcher {
 public:
  // `keeps_stop`: what is handed out ends with the stop string that was found.
  explicit StopMatcher(std::vector<std::string> stops, bool keeps_stop = false)
      : stops_(std::move(stops)), keeps_stop_(keeps_stop) {}
  StopMatcher(StopMatcher&&) = default;  // moves the strings where they lie
  StopMatcher& operator=(StopMatcher&&) = default;

  // Appends text; returns the part that is safe to hand out now. After a match returns what stood before the
  // first stop string, and nothing from then on.
  std::string push(std::string_view text);
  // The held-back rest, when the text ends without a match.
  std::string flush();
  // The stop string that was found; null: none so far.
  const std::string* matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool keeps_stop_;
  std::string held_;                      // text that may be the start of a stop string
  const std::string* matched_ = nullptr;  // one of stops_
};

}  // namespace attend
