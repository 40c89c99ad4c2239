// TaggedParser: base class of formats that write calls between <tool_call> and </tool_call>.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/formats/held_back.h"

namespace attend::serve {

// Reads calls between <tool_call> and </tool_call> and the text around them. Spaces next to a call are
// dropped.
class TaggedParser : public AnswerParser {
 public:
  void push(std::string_view text, AnswerParts& parts) final {
    pending_ += text;
    for (bool goes_on = true; goes_on;) {
      switch (place_) {
        case Place::kText:
          goes_on = read_text(parts);
          break;
        case Place::kCall:
          goes_on = read_one(parts);
          break;
        case Place::kAfterCall:
          goes_on = skip_to_end();
          break;
      }
    }
  }

  void finish(AnswerParts& parts) final {
    if (place_ == Place::kCall && !has_output()) {
      parts.add(AnswerPart::Kind::kText, spaces_);
      parts.add(AnswerPart::Kind::kText, kOpen);
      parts.add(AnswerPart::Kind::kText, pending_text() + pending_);
    } else if (place_ == Place::kText && !(has_calls_ && trim_front(pending_).empty())) {
      parts.add(AnswerPart::Kind::kText, pending_);
    }
    pending_.clear();
  }

 protected:
  virtual void begin_call() = 0;
  // Removes what it reads from the front of `pending`. If it returns kNoCall, `pending` is restored.
  virtual CallRead read_call(std::string& pending, AnswerParts& parts) = 0;
  // True if the call was emitted. Otherwise pending_text() returns the text consumed for it.
  virtual bool has_output() const = 0;
  virtual std::string pending_text() const = 0;

 private:
  enum class Place { kText, kCall, kAfterCall };
  static constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

  bool read_text(AnswerParts& parts) {
    const size_t open = pending_.find(kOpen);
    const bool found = open != std::string::npos;
    const size_t end = found ? open : pending_.size() - num_held_back(pending_, kOpen);
    const size_t size = trimmed_size(pending_, end);
    parts.add(AnswerPart::Kind::kText, std::string_view(pending_).substr(0, size));
    if (found) {
      spaces_ = pending_.substr(size, open - size);
      place_ = Place::kCall;
      begin_call();
    }
    pending_.erase(0, found ? open + kOpen.size() : size);
    return found;
  }

  bool read_one(AnswerParts& parts) {
    switch (read_call(pending_, parts)) {
      case CallRead::kMore:
        return false;
      case CallRead::kDone:
        has_calls_ = true;
        place_ = Place::kAfterCall;
        return true;
      case CallRead::kNoCall:
        parts.add(AnswerPart::Kind::kText, spaces_);
        parts.add(AnswerPart::Kind::kText, kOpen);
        place_ = Place::kText;
        return true;
    }
    return false;
  }

  // A model may omit the closing tag before the next opening tag.
  bool skip_to_end() {
    const size_t close = pending_.find(kClose), open = pending_.find(kOpen);
    if (close == std::string::npos && open == std::string::npos) {
      const size_t kept = std::max(num_held_back(pending_, kClose), num_held_back(pending_, kOpen));
      pending_.erase(0, pending_.size() - kept);
      return false;
    }
    pending_.erase(0, close < open ? close + kClose.size() : open);
    place_ = Place::kText;
    return true;
  }

  Place place_ = Place::kText;
  std::string pending_;
  std::string spaces_;  // spaces before the call that is being read
  bool has_calls_ = false;
};

}  // namespace attend::serve
