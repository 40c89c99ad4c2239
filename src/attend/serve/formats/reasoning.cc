#include "attend/serve/formats/reasoning.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

class ReasoningParser final : public AnswerParser {
 public:
  ReasoningParser(const ReasoningFormat& format, bool inside, std::unique_ptr<AnswerParser> rest)
      : format_(format), inside_(inside), rest_(std::move(rest)) {}

  void push(std::string_view text, AnswerParts& parts) override {
    if (place_ == Place::kAfter && !after_tag_) return rest_->push(text, parts);
    pending_ += text;
    if (place_ == Place::kStart) begin();
    if (place_ == Place::kInside) parse_reasoning(parts);
    if (place_ == Place::kAfter) go_on(parts);
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
  enum class Place { kStart, kInside, kAfter };

  // If the prompt opened the tag, the model may repeat the opening tag.
  void begin() {
    const std::string_view text = trim_front(pending_);
    if (text.starts_with(format_.open)) {
      pending_ = text.substr(format_.open.size());
      place_ = Place::kInside;
    } else if (!format_.open.starts_with(text)) {
      place_ = inside_ ? Place::kInside : Place::kAfter;
    }
  }

  void parse_reasoning(AnswerParts& parts) {
    if (!has_content_) {
      pending_ = trim_front(pending_);
      has_content_ = !pending_.empty();
    }
    const size_t close = pending_.find(format_.close);
    const size_t end =
        close != std::string::npos ? close : pending_.size() - num_held_back(pending_, format_.close);
    const size_t size = trimmed_size(pending_, end);
    parts.add(Kind::kReasoning, std::string_view(pending_).substr(0, size));
    pending_.erase(0, close != std::string::npos ? close + format_.close.size() : size);
    if (close == std::string::npos) return;
    place_ = Place::kAfter;
    after_tag_ = true;
  }

  void go_on(AnswerParts& parts) {
    if (after_tag_) pending_ = trim_front(pending_);
    if (pending_.empty()) return;
    after_tag_ = false;
    rest_->push(std::exchange(pending_, {}), parts);
  }

  const ReasoningFormat& format_;
  bool inside_;
  std::unique_ptr<AnswerParser> rest_;
  Place place_ = Place::kStart;
  std::string pending_;
  bool has_content_ = false;  // reasoning other than spaces has arrived
  bool after_tag_ = false;    // only spaces have arrived since the closing tag
};

class ReasoningMask final : public TokenMask {
 public:
  ReasoningMask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                bool inside)
      : format_(format),
        mask_(std::move(mask)),
        tokenizer_(tokenizer),
        inside_at_start_(inside),
        place_(inside ? Place::kInside : Place::kStart),
        open_(tokenizer.token_id(format.open)),
        decoder_(tokenizer, /*skip_special_tokens=*/false) {}

  bool fill(std::span<uint32_t> words) override {
    if (place_ == Place::kInside) return false;
    const bool masked = mask_->fill(words);
    if (masked && place_ == Place::kStart && open_ && static_cast<size_t>(*open_) / 32 < words.size())
      words[static_cast<size_t>(*open_) / 32] |= 1u << (*open_ % 32);
    return masked;
  }

  void accept(int32_t token_id) override {
    if (place_ == Place::kStart) place_ = token_id == open_ ? Place::kInside : Place::kAfter;
    if (place_ == Place::kAfter) return mask_->accept(token_id);
    text_ += decoder_.push(token_id);
    if (text_.find(format_.close) != std::string::npos)
      place_ = Place::kAfter;
    else if (text_.size() > format_.close.size())
      text_.erase(0, text_.size() - format_.close.size());
  }

  bool ready() override { return place_ == Place::kInside || mask_->ready(); }
  bool wait_for(std::chrono::microseconds timeout) override {
    return place_ == Place::kInside || mask_->wait_for(timeout);
  }

  std::shared_ptr<TokenMask> fork() const override {
    return std::make_shared<ReasoningMask>(format_, mask_->fork(), tokenizer_, inside_at_start_);
  }

 private:
  enum class Place { kStart, kInside, kAfter };

  const ReasoningFormat& format_;
  std::shared_ptr<TokenMask> mask_;
  Tokenizer tokenizer_;
  bool inside_at_start_;
  Place place_;
  std::optional<int32_t> open_;
  StreamDecoder decoder_;
  std::string text_;  // last bytes of the reasoning
};

constexpr std::string_view kThinkNames[] = {"deepseek-r1", "deepseek_r1", "qwen3", "qwen3-thinking"};

}  // namespace

constexpr ReasoningFormat kThinkFormat = {.names = kThinkNames, .open = "<think>", .close = "</think>"};

const ReasoningFormat& parse_reasoning_format(std::string_view name) {
  if (std::ranges::find(kThinkFormat.names, name) == kThinkFormat.names.end())
    fail(ErrorCode::kInvalidArgument, "--reasoning-parser ", name,
         ": expected deepseek-r1, qwen3 or qwen3-thinking, which read <think>...</think>");
  return kThinkFormat;
}

bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt) {
  return prompt.substr(0, trimmed_size(prompt, prompt.size())).ends_with(format.open);
}

std::unique_ptr<AnswerParser> make_reasoning_parser(const ReasoningFormat& format, bool inside,
                                                    std::unique_ptr<AnswerParser> rest) {
  return std::make_unique<ReasoningParser>(format, inside, std::move(rest));
}

std::shared_ptr<TokenMask> make_reasoning_mask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask,
                                               const Tokenizer& tokenizer, bool inside) {
  return std::make_shared<ReasoningMask>(format, std::move(mask), tokenizer, inside);
}

}  // namespace attend::serve
