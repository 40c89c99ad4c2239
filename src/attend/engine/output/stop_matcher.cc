#include "attend/engine/output/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace attend {
namespace {

// Length of the longest proper prefix of `stop` that `text` ends with.
size_t partial_match(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.ends_with(stop.substr(0, length))) return length;
  return 0;
}

}  // namespace

std::string StopMatcher::push(std::string_view text) {
  if (matched_ != nullptr) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  size_t first = std::string::npos;
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    if (const size_t at = held_.find(stop); at < first) {
      first = at;
      matched_ = &stop;
    }
    hold = std::max(hold, partial_match(held_, stop));
  }
  if (matched_ != nullptr) {
    held_.resize(first + (keeps_stop_ ? matched_->size() : 0));
    return std::exchange(held_, {});
  }
  std::string safe = held_.substr(0, held_.size() - hold);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace attend
