#include "attend/serve/protocols/chat_answer.h"

#include <fmt/format.h>

#include <random>

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

std::string new_call_id() {
  std::random_device random;
  return fmt::format("call_{:08x}{:08x}{:08x}", random(), random(), random());
}

}  // namespace

ChatAnswer::ChatAnswer(const AnswerFormat& format)
    : parser_(format.tools.empty() ? make_text_parser() : format.tool_format->make_parser(format.tools)) {
  if (format.reasoning)
    parser_ = make_reasoning_parser(*format.reasoning, format.inside_reasoning, std::move(parser_));
}

const std::vector<AnswerDelta>& ChatAnswer::push(std::string_view text, bool ends) {
  new_parts_.clear();
  deltas_.clear();
  parser_->push(text, new_parts_);
  if (ends) parser_->finish(new_parts_);
  for (const AnswerPart& part : new_parts_.all()) {
    switch (part.kind) {
      case Kind::kText:
        text_ += part.text;
        break;
      case Kind::kReasoning:
        reasoning_ += part.text;
        break;
      case Kind::kCall:
        calls_.push_back({new_call_id(), part.text, {}});
        break;
      case Kind::kArguments:
        calls_.back().arguments += part.text;
        break;
    }
    deltas_.push_back({part, calls_.empty() ? 0 : calls_.size() - 1});
  }
  return deltas_;
}

}  // namespace attend::serve
