#include "attend/serve/formats/answer_parser.h"

#include <utility>

#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

class TextParser final : public AnswerParser {
 public:
  void push(std::string_view text, AnswerParts& parts) override { parts.add(Kind::kText, text); }
  void finish(AnswerParts&) override {}
};

class ReasoningParser final : public AnswerParser {
 public:
  ReasoningParser(bool inside, std::unique_ptr<AnswerParser> rest)
      : inside_(inside), rest_(std::move(rest)) {}

  void push(std::string_view text, AnswerParts& parts) override {
    if (place_ == Place::kBehind && !after_tag_) return rest_->push(text, parts);
    pending_ += text;
    if (place_ == Place::kStart) begin();
    if (place_ == Place::kInside) think(parts);
    if (place_ == Place::kBehind) go_on(parts);
  }

  void finish(AnswerParts& parts) override {
    if (place_ == Place::kInside || (place_ == Place::kStart && inside_))
      parts.add(Kind::kReasoning, pending_);
    else if (!pending_.empty() && !after_tag_)
      rest_->push(pending_, parts);
    pending_.clear();
    rest_->finish(parts);
  }

 private:
  enum class Place { kStart, kInside, kBehind };
  static constexpr std::string_view kOpen = "<think>", kClose = "</think>";

  // Models whose prompt opens the tag may open it once more.
  void begin() {
    const std::string_view text = trim_front(pending_);
    if (text.starts_with(kOpen)) {
      pending_ = text.substr(kOpen.size());
      place_ = Place::kInside;
    } else if (!kOpen.starts_with(text)) {
      place_ = inside_ ? Place::kInside : Place::kBehind;
    }
  }

  void think(AnswerParts& parts) {
    if (!has_begun_) {
      pending_ = trim_front(pending_);
      has_begun_ = !pending_.empty();
    }
    const size_t close = pending_.find(kClose);
    const size_t end = close != std::string::npos ? close : pending_.size() - num_held_back(pending_, kClose);
    const size_t size = trimmed_size(pending_, end);
    parts.add(Kind::kReasoning, std::string_view(pending_).substr(0, size));
    pending_.erase(0, close != std::string::npos ? close + kClose.size() : size);
    if (close == std::string::npos) return;
    place_ = Place::kBehind;
    after_tag_ = true;
  }

  void go_on(AnswerParts& parts) {
    if (after_tag_) pending_ = trim_front(pending_);
    if (pending_.empty()) return;
    after_tag_ = false;
    rest_->push(std::exchange(pending_, {}), parts);
  }

  bool inside_;
  std::unique_ptr<AnswerParser> rest_;
  Place place_ = Place::kStart;
  std::string pending_;
  bool has_begun_ = false;  // a thought that is no space came
  bool after_tag_ = false;  // nothing but spaces came since </think>
};

}  // namespace

void AnswerParts::add(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (kind != Kind::kCall && !parts_.empty() && parts_.back().kind == kind)
    parts_.back().text += text;
  else
    parts_.push_back({kind, std::string(text)});
}

std::unique_ptr<AnswerParser> make_text_parser() { return std::make_unique<TextParser>(); }

std::unique_ptr<AnswerParser> make_reasoning_parser(bool inside, std::unique_ptr<AnswerParser> rest) {
  return std::make_unique<ReasoningParser>(inside, std::move(rest));
}

}  // namespace attend::serve
