// ChatAnswer: the answer of one completion, as far as it has come: text, thoughts and calls of tools.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// How a server's model writes calls and thoughts.
struct ChatFormats {
  const ToolFormat* tools = nullptr;           // null: not known
  const ReasoningFormat* reasoning = nullptr;  // null: thoughts are text
};

// What an answer is to be read as.
struct AnswerFormat {
  std::vector<Tool> tools;  // empty: calls are not looked for
  const ToolFormat* tool_format = &kHermesFormat;
  const ReasoningFormat* reasoning = nullptr;  // null: thoughts are text
  bool inside_reasoning = false;               // the prompt opened the tag
};

// A part that is new, and the index of the call that it is of.
struct AnswerDelta {
  AnswerPart part;
  size_t call = 0;
};

class ChatAnswer {
 public:
  // `format` outlives it.
  explicit ChatAnswer(const AnswerFormat& format);

  // What is new by `text`, and with `ends`, by the end.
  const std::vector<AnswerDelta>& push(std::string_view text, bool ends);
  bool has_calls() const { return !calls_.empty(); }

  struct Call {
    std::string id, name, arguments;
  };
  const std::string& text() const { return text_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<Call>& calls() const { return calls_; }

 private:
  std::unique_ptr<AnswerParser> parser_;
  AnswerParts new_parts_;
  std::vector<AnswerDelta> deltas_;
  std::string text_, reasoning_;
  std::vector<Call> calls_;
};

}  // namespace attend::serve
