// StopMatcher: finds stop strings in streamed text, and holds back text that may be the start of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Returned text never contains a stop string (except at the end with `keeps_stop`), nor the start of one that
// later text completes.
class StopMatcher {
 public:
  // `keeps_stop`: the returned text ends with the matched stop string.
  explicit StopMatcher(std::vector<std::string> stops, bool keeps_stop = false)
      : stops_(std::move(stops)), keeps_stop_(keeps_stop) {}
  StopMatcher(StopMatcher&&) = default;  // the strings keep their addresses, so matched() stays valid
  StopMatcher& operator=(StopMatcher&&) = default;

  // Appends text and returns the part that can be output now. At a match it returns the text before the first
  // stop string, and after a match nothing.
  std::string push(std::string_view text);
  // Returns the text held back, if the text ends without a match.
  std::string flush();
  // Matched stop string; null: none so far.
  const std::string* matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool keeps_stop_;
  std::string held_;                      // text that may be the start of a stop string
  const std::string* matched_ = nullptr;  // one of stops_
};

}  // namespace attend
