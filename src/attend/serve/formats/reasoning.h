// ReasoningFormat: the tags between which models write thoughts; the parser that separates them from an
// answer, and the mask that lets a grammar begin after them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "attend/engine/generation_request.h"
#include "attend/serve/formats/answer_parser.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

struct ReasoningFormat {
  std::span<const std::string_view> names;  // for --reasoning-parser, as SGLang has them
  std::string_view open, close;
};

// <think>...</think>
extern const ReasoningFormat kThinkFormat;

// Throws Error(kInvalidArgument) for a name that none has.
const ReasoningFormat& parse_reasoning_format(std::string_view name);
// Whether the model is to go on inside of thoughts: the prompt ends with the opening tag.
bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt);

// Text between the tags becomes thoughts, the rest goes on to `rest`. `inside`: the prompt opened the tag, so
// that all before the closing one are thoughts. `format` outlives the parser.
std::unique_ptr<AnswerParser> make_reasoning_parser(const ReasoningFormat& format, bool inside,
                                                    std::unique_ptr<AnswerParser> rest);
// Allows every token until the closing tag has come; from there on those that `mask` allows. `inside`: the
// prompt opened the tag; otherwise the model may open it, or begin with what the grammar allows.
std::shared_ptr<TokenMask> make_reasoning_mask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask,
                                               const Tokenizer& tokenizer, bool inside);

}  // namespace attend::serve
