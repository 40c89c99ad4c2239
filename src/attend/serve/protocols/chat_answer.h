// ChatAnswer: text, reasoning and tool calls of a completion as far as it has been generated.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/thinking_controls.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// Formats in which the server's model writes calls and reasoning.
struct ChatFormats {
  const ToolFormat* tools = nullptr;              // null: unknown
  std::string tools_reason;                       // why the format is unknown
  const ReasoningFormat* reasoning = nullptr;     // null: reasoning is part of the text
  bool single_calls = false;                      // the chat template rejects two calls in one message
  bool grammars = false;                          // tools with "strict" restrict the answer
  MarkerTokens marker_tokens;                     // of `tools` in the model's vocabulary
  bool has_special_reasoning = false;             // the tags of `reasoning` are special tokens of the model
  std::optional<ThinkingControls> thinking = {};  // of the chat template; none: no template
};

// How an answer is parsed.
struct AnswerFormat {
  std::vector<Tool> tools;                       // empty: calls are not parsed
  const ToolFormat* tool_format = nullptr;       // null: calls are not parsed
  bool parallel = true;                          // false: calls after the first are omitted
  const ReasoningFormat* reasoning = nullptr;    // null: reasoning is part of the text
  bool inside_reasoning = false;                 // the prompt opened the tag
  std::optional<int> max_reasoning_tokens = {};  // then the reasoning is closed
  std::string_view call_id_prefix = "call_";     // of the ids of calls
};

// Consecutive parts of an answer that APIs return as one item.
struct AnswerBlock {
  AnswerPart::Kind kind = AnswerPart::Kind::kText;  // kText, kReasoning or kCall
  std::string text;                                 // kCall: the JSON arguments
  std::string id, name;                             // kCall
};

// New part, and the indices of its block and of its call among all calls.
struct AnswerDelta {
  AnswerPart part;
  size_t call = 0;
  size_t block = 0;
};

class ChatAnswer {
 public:
  // `format` outlives this object.
  explicit ChatAnswer(const AnswerFormat& format);

  enum class End {
    kNone,      // more text follows
    kComplete,  // the model ended the answer
    kCut,       // the answer was cut off, by max_tokens or a stop string
  };
  // Returns the parts that are new after `text` and after the end of the answer.
  const std::vector<AnswerDelta>& push(std::string_view text, End end);
  bool has_calls() const { return num_calls_ > 0; }
  // Returns true if the answer was cut off within its last call, whose arguments are not complete.
  bool is_cut_in_call() const { return is_cut_in_call_; }

  // In the order of the answer.
  const std::vector<AnswerBlock>& blocks() const { return blocks_; }
  // Returns the joined text of all blocks of this kind.
  std::string joined(AnswerPart::Kind kind) const;

 private:
  std::unique_ptr<AnswerParser> parser_;
  AnswerParts new_parts_;
  std::vector<AnswerDelta> deltas_;
  std::string_view call_id_prefix_;
  std::vector<AnswerBlock> blocks_;
  size_t num_calls_ = 0;
  bool parallel_;
  bool omits_call_ = false;
  bool is_cut_in_call_ = false;
};

}  // namespace attend::serve
