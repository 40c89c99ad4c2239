// ToolFormat: record of how a family of models writes tool calls. A new format is a file that defines a
// record, and a row of the list in tool_format.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/grammar/grammar_compiler.h"
#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

// Tool that a model may call.
struct Tool {
  std::string name;
  Json parameters;  // JSON schema; an empty object if the request has none
};

struct ToolFormat {
  std::span<const std::string_view>
      names;  // for --tool-call-parser: SGLang's name first, then its aliases and vLLM's
  // Returns true if the chat template instructs the model to write this format.
  bool (*is_in_template)(std::string_view chat_template);
  // `tools` outlive the parser. A call of an unknown tool is text.
  std::unique_ptr<AnswerParser> (*make_parser)(const std::vector<Tool>& tools);
  // Returns the grammar of one call with arguments of this JSON schema, as a "tag" of xgrammar's structural
  // tags.
  Json (*call_tag)(const std::string& tool, const Json& schema);
  std::string_view separator;  // between calls

  std::string_view name() const { return names.front(); }
};

// Qwen 2.5 and 3, Hermes: <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>
extern const ToolFormat kHermesFormat;
// Qwen3-Coder: <tool_call>\n<function=...>\n<parameter=...>\n...
extern const ToolFormat kQwen3CoderFormat;
// Llama 3.1 to 3.3: {"name": ..., "parameters": {...}}, separated by ";"
extern const ToolFormat kLlama3Format;

// Returns the format with this name. Throws Error(kInvalidArgument) that lists all names.
const ToolFormat& parse_tool_format(std::string_view name);
// Returns the first format for which is_in_template() is true, or null if none matches.
const ToolFormat* find_tool_format(std::string_view chat_template);

// Returns null if no tool has this name.
const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name);

// Calls that an answer may or must contain.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name;      // name of the tool for kNamed
  bool parallel = true;  // allows more than one call
};

// Returns the grammar of answers that must be calls (kRequired, kNamed), in this format.
Grammar tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice);
// Returns a tag with JSON of the schema as content.
Json json_call_tag(const std::string& begin, const Json& schema, const std::string& end);

}  // namespace attend::serve
