#include "attend/serve/formats/marker_filter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

class MarkerFilter final : public AnswerParser {
 public:
  MarkerFilter(const Texts& markers, std::unique_ptr<AnswerParser> rest)
      : markers_(markers), rest_(std::move(rest)) {}

  void push(std::string_view text, AnswerParts& parts) override {
    pending_ += text;
    while (pass_on(parts)) {
    }
  }

  void finish(AnswerParts& parts, bool complete) override {
    if (!complete) remove_cut_marker(pending_, markers_);
    rest_->push(std::exchange(pending_, {}), parts);
    rest_->finish(parts, complete);
  }

 private:
  // Returns true if a marker was removed, so that more text may follow it.
  bool pass_on(AnswerParts& parts) {
    size_t at = std::string::npos, size = 0, kept = 0;
    for (const std::string_view marker : markers_) {
      if (const size_t found = pending_.find(marker); found < at) at = found, size = marker.size();
      kept = std::max(kept, num_held_back(pending_, marker));
    }
    const size_t end = at != std::string::npos ? at : pending_.size() - kept;
    rest_->push(std::string_view(pending_).substr(0, end), parts);
    pending_.erase(0, end + size);
    return at != std::string::npos;
  }

  Texts markers_;
  std::unique_ptr<AnswerParser> rest_;
  std::string pending_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_marker_filter(const Texts& markers, std::unique_ptr<AnswerParser> rest) {
  if (markers.begin() == markers.end()) return rest;
  return std::make_unique<MarkerFilter>(markers, std::move(rest));
}

}  // namespace attend::serve
