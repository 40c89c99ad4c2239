#include "attend/serve/protocols/chat_answer.h"

#include "attend/serve/formats/marker_filter.h"
#include "attend/serve/protocols/random_id.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

constexpr int kNumIdDigits = 24;

}  // namespace

ChatAnswer::ChatAnswer(const AnswerFormat& format)
    : call_id_prefix_(format.call_id_prefix), parallel_(format.parallel) {
  const bool has_calls = format.tool_format && !format.tools.empty();
  const auto make_calls = [&format, has_calls] {
    return make_marker_filter(
        format.reasoning ? format.reasoning->dropped : Texts(),
        make_marker_filter(
            has_calls ? format.tool_format->dropped : Texts(),
            has_calls ? make_call_parser(*format.tool_format, format.tools) : make_text_parser()));
  };
  // Channels contain both, so that the parser of calls returns the reasoning as well.
  const bool channels = has_calls && format.tool_format->structure == ToolFormat::Structure::kChannels;
  if (format.reasoning && format.reasoning->channels)
    parser_ = make_call_parser(parse_tool_format("gpt-oss"), format.tools);
  else if (format.reasoning && !channels)
    parser_ = make_reasoning_parser(*format.reasoning, format.inside_reasoning, make_calls,
                                    has_calls ? format.tool_format->opens : Texts());
  else
    parser_ = make_calls();
}

const std::vector<AnswerDelta>& ChatAnswer::push(std::string_view text, End end) {
  new_parts_.clear();
  deltas_.clear();
  parser_->push(text, new_parts_);
  if (end != End::kNone) parser_->finish(new_parts_, end == End::kComplete);
  for (const AnswerPart& part : new_parts_.all()) {
    const bool is_arguments = part.kind == Kind::kArguments;
    if (part.kind == Kind::kCall) omits_call_ = !parallel_ && has_calls();
    if ((part.kind == Kind::kCall || is_arguments) && omits_call_) continue;
    if (part.kind == Kind::kCall) {
      blocks_.push_back({Kind::kCall, {}, random_id(call_id_prefix_, kNumIdDigits), part.text});
      ++num_calls_;
    } else {
      const Kind kind = is_arguments ? Kind::kCall : part.kind;
      if (blocks_.empty() || blocks_.back().kind != kind) blocks_.push_back({kind, {}, {}, {}});
      blocks_.back().text += part.text;
    }
    deltas_.push_back({part, num_calls_ == 0 ? 0 : num_calls_ - 1, blocks_.size() - 1});
  }
  is_cut_in_call_ = end == End::kCut && !blocks_.empty() && blocks_.back().kind == Kind::kCall &&
                    !Json::accept(blocks_.back().text);
  return deltas_;
}

std::string ChatAnswer::joined(Kind kind) const {
  std::string text;
  for (const AnswerBlock& block : blocks_)
    if (block.kind == kind) text += block.text;
  return text;
}

}  // namespace attend::serve
