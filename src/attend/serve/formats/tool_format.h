// ToolFormat: how a family of models writes calls of tools, as a record. A format is a file that defines one,
// and a row of the list in tool_format.cc.
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

// What a model may call.
struct Tool {
  std::string name;
  Json parameters;  // a JSON schema; an empty object where none was given
};

struct ToolFormat {
  std::span<const std::string_view>
      names;  // for --tool-call-parser: SGLang's first, then its others and vLLM's
  // Whether a chat template makes the model write this format.
  bool (*is_in_template)(std::string_view chat_template);
  // `tools` outlive the parser. A call of something that is not among them is text.
  std::unique_ptr<AnswerParser> (*make_parser)(const std::vector<Tool>& tools);
  // Grammar of one call with arguments of this JSON schema: a "tag" of xgrammar's structural tags.
  Json (*call_tag)(const std::string& tool, const Json& schema);
  std::string_view separator;  // between calls

  std::string_view name() const { return names.front(); }
};

// <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>: Qwen 2.5 and 3, Hermes
extern const ToolFormat kHermesFormat;
// <tool_call>\n<function=...>\n<parameter=...>\n...: Qwen3-Coder
extern const ToolFormat kQwen3CoderFormat;
// {"name": ..., "parameters": {...}}, with ; between: Llama 3.1 to 3.3
extern const ToolFormat kLlama3Format;

// By one of its names. Throws Error(kInvalidArgument) that lists all names.
const ToolFormat& parse_tool_format(std::string_view name);
// The first whose is_in_template() holds. Null: the template names none that is known.
const ToolFormat* find_tool_format(std::string_view chat_template);

// Null: no such tool.
const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name);

// Which calls an answer may have, or must.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name;      // of kNamed
  bool parallel = true;  // more than one
};

// Grammar of answers that have to be calls (kRequired, kNamed), as the format writes them.
Grammar tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice);
// A tag whose content is JSON of the schema.
Json json_call_tag(const std::string& begin, const Json& schema, const std::string& end);

}  // namespace attend::serve
