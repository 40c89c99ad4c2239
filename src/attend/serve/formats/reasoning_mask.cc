#include "attend/serve/formats/reasoning_mask.h"

#include <string>
#include <utility>

namespace attend::serve {
namespace {

class ReasoningMask final : public TokenMask {
 public:
  ReasoningMask(std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer, bool inside)
      : mask_(std::move(mask)),
        tokenizer_(tokenizer),
        inside_at_start_(inside),
        place_(inside ? Place::kInside : Place::kStart),
        open_(tokenizer.token_id("<think>")),
        decoder_(tokenizer, /*skip_special_tokens=*/false) {}

  bool fill(std::span<uint32_t> words) override {
    if (place_ == Place::kInside) return false;
    const bool masked = mask_->fill(words);
    if (masked && place_ == Place::kStart && open_ && static_cast<size_t>(*open_) / 32 < words.size())
      words[static_cast<size_t>(*open_) / 32] |= 1u << (*open_ % 32);
    return masked;
  }

  void accept(int32_t token_id) override {
    if (place_ == Place::kStart) place_ = token_id == open_ ? Place::kInside : Place::kBehind;
    if (place_ == Place::kBehind) return mask_->accept(token_id);
    text_ += decoder_.push(token_id);
    if (text_.find(kClose) != std::string::npos)
      place_ = Place::kBehind;
    else if (text_.size() > kClose.size())
      text_.erase(0, text_.size() - kClose.size());
  }

  std::shared_ptr<TokenMask> fork() const override {
    return std::make_shared<ReasoningMask>(mask_->fork(), tokenizer_, inside_at_start_);
  }

 private:
  enum class Place { kStart, kInside, kBehind };
  static constexpr std::string_view kClose = "</think>";

  std::shared_ptr<TokenMask> mask_;
  Tokenizer tokenizer_;
  bool inside_at_start_;
  Place place_;
  std::optional<int32_t> open_;
  StreamDecoder decoder_;
  std::string text_;  // the end of the thoughts
};

}  // namespace

std::shared_ptr<TokenMask> make_reasoning_mask(std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                                               bool inside) {
  return std::make_shared<ReasoningMask>(std::move(mask), tokenizer, inside);
}

}  // namespace attend::serve
