// ReasoningFormat: tags that enclose a model's reasoning, the parser that separates reasoning from the
// answer, and the mask that starts a grammar after it.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "attend/engine/generation_request.h"
#include "attend/serve/formats/answer_parser.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

struct ReasoningFormat {
  std::span<const std::string_view> names;  // for --reasoning-parser, with SGLang's names
  std::string_view open, close;
};

// Format <think>...</think>.
extern const ReasoningFormat kThinkFormat;

// Throws Error(kInvalidArgument) for an unknown name.
const ReasoningFormat& parse_reasoning_format(std::string_view name);
// Returns true if the prompt ends with the opening tag, so that the answer starts with reasoning.
bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt);

// Text between the tags becomes reasoning; the other text is passed to `rest`. `inside`: the prompt opened
// the tag, so all text before the closing tag is reasoning. `format` outlives the parser.
std::unique_ptr<AnswerParser> make_reasoning_parser(const ReasoningFormat& format, bool inside,
                                                    std::unique_ptr<AnswerParser> rest);
// Allows every token until the closing tag has been generated, and after it the tokens that `mask` allows.
// `inside`: the prompt opened the tag. Otherwise the model may open it or start with text that the grammar
// allows.
std::shared_ptr<TokenMask> make_reasoning_mask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask,
                                               const Tokenizer& tokenizer, bool inside);

}  // namespace attend::serve
