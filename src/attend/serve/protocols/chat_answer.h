// ChatAnswer: the answer of one completion, as far as it has come: text, thoughts and calls of tools.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/protocols/json_text.h"

namespace attend::serve {

// How a server's model writes calls and thoughts.
struct ChatFormats {
  std::optional<ToolFormat> tools;  // none: not known
  bool reasoning = false;           // <think>...</think>
};

// What an answer is to be read as.
struct AnswerFormat {
  std::vector<Tool> tools;  // empty: calls are not looked for
  ToolFormat tool_format = ToolFormat::kHermes;
  bool reasoning = false;
  bool inside_reasoning = false;  // the prompt opened <think>
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

  // Into an open message: its fields beside the role.
  void add_message(JsonText& json) const;
  // Into an open delta.
  void add_delta(const AnswerDelta& delta, JsonText& json) const;

 private:
  struct Call {
    std::string id, name, arguments;
  };

  std::unique_ptr<AnswerParser> parser_;
  AnswerParts new_parts_;
  std::vector<AnswerDelta> deltas_;
  std::string text_, reasoning_;
  std::vector<Call> calls_;
};

}  // namespace attend::serve
