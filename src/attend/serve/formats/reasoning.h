// ReasoningFormat: tags that enclose a model's reasoning, the parser that separates reasoning from the
// answer, and the mask that starts a grammar after it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "attend/engine/generation_request.h"
#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

struct ReasoningFormat {
  Texts names = {};  // for --reasoning-parser: the preferred name first, then others of SGLang and vLLM
  std::string_view open = {}, close = {};
  Texts dropped = {};     // markers around the text for the user
  bool special = false;   // the tags are special tokens, so that they must be part of the decoded text
  bool channels = false;  // gpt-oss: reasoning is a channel, which the parser of calls reads
  Texts efforts = {};     // levels of effort that the model was trained on; empty: those of the template

  std::string_view name() const { return names.front(); }
};

// All formats; the first is <think>...</think>.
std::span<const ReasoningFormat> reasoning_formats();
std::span<const UnsupportedFormat> unsupported_reasoning_formats();
// Throws Error(kUnsupported) with the reason for the name of an unsupported format, and
// Error(kInvalidArgument) that lists all names for other names.
const ReasoningFormat& parse_reasoning_format(std::string_view name);
// Returns true if a tag is a special token, so that it is in the text only if special tokens are.
bool has_special_tags(const ReasoningFormat& format, const Tokenizer& tokenizer);
// Returns true if each tag is a special token or begins with one.
bool begins_with_special_tokens(const ReasoningFormat& format, const Tokenizer& tokenizer);
// Returns true if the prompt ends with the opening tag, so that the answer starts with reasoning.
bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt);

// Text between the tags becomes reasoning; the other text is passed to a parser that `make_rest` returns.
// `inside`: the prompt opened the tag, so all text before the closing tag is reasoning. `call_opens`: if one
// of these begins a line of the reasoning and a call follows, the reasoning ends there. `format` outlives the
// parser.
std::unique_ptr<AnswerParser> make_reasoning_parser(const ReasoningFormat& format, bool inside,
                                                    std::function<std::unique_ptr<AnswerParser>()> make_rest,
                                                    const Texts& call_opens = {});
// Allows every token but `stop_ids`, the end-of-sequence tokens, until the closing tag has been generated,
// and after it the tokens that `mask` allows. `inside`: the prompt opened the tag. Otherwise the model may
// open it or start with text that the grammar allows. After one of `call_opens` in the reasoning, the answer
// may end, since make_reasoning_parser() may find a call.
std::shared_ptr<TokenMask> make_reasoning_mask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask,
                                               const Tokenizer& tokenizer, bool inside,
                                               std::vector<int32_t> stop_ids, const Texts& call_opens = {});
// Ends the reasoning after `max_tokens` tokens: then only the closing tag is allowed. Otherwise `mask`
// decides, or all tokens are allowed if it is null. `inside`: the prompt opened the tag.
std::shared_ptr<TokenMask> make_reasoning_budget(const ReasoningFormat& format,
                                                 std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                                                 bool inside, int max_tokens);

}  // namespace attend::serve
