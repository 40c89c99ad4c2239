// Choice of a model's formats by evidence: a conversation with a known call and known reasoning is rendered
// by the model's chat template, and the formats that read it back are candidates.
#pragma once

#include <optional>
#include <string>

#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/text/chat_template/chat_template.h"

namespace attend::serve {

struct ToolChoiceByTemplate {
  const ToolFormat* format = nullptr;  // null: no format or several
  std::string reason;                  // for the log, and for errors of requests with tools
  bool only_renders_tools = false;     // the template renders the tools, but neither calls nor instructions
  bool omits_tools = false;            // the template does not render the tools of a format chosen by name
};
struct ReasoningChoiceByTemplate {
  const ReasoningFormat* format = nullptr;  // null: the template has no reasoning that attend reads
  std::string reason;
};

// Formats of a model, and why.
struct ModelFormats {
  ToolChoiceByTemplate tools;
  ReasoningChoiceByTemplate reasoning;

  // Return a line for the log: "tool calls: NAME (REASON)", "reasoning: NAME (REASON)".
  std::string tools_line() const;
  std::string reasoning_line() const;
};

// Returns the formats with these names; for an empty name or "auto", those that the chat template shows.
// `reasoning_parser`: "none" for a text without reasoning. Throws Error for unknown and unsupported names.
ModelFormats choose_formats(const std::string& tool_call_parser, const std::string& reasoning_parser,
                            const std::optional<ChatTemplate>& chat);
ToolChoiceByTemplate choose_tool_format(const ChatTemplate& chat);
ReasoningChoiceByTemplate choose_reasoning_format(const ChatTemplate& chat);
// Sets formats that neither a name nor the chat template determines, if the vocabulary has the markers of
// exactly one as special tokens: of calls, if the template renders the tools; of reasoning, if
// `reasoning_parser` is "" or "auto", and each tag begins with one.
void add_formats_by_vocabulary(const std::string& reasoning_parser, const Tokenizer& tokenizer,
                               ModelFormats& formats);

}  // namespace attend::serve
