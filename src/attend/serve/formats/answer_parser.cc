#include "attend/serve/formats/answer_parser.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

class TextParser final : public AnswerParser {
 public:
  void push(std::string_view text, AnswerParts& parts) override { parts.add(Kind::kText, text); }
  void finish(AnswerParts&, bool) override {}
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

}  // namespace attend::serve
