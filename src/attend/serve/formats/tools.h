// Tools: what a model may call, and how the families of models write a call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/grammar/grammar.h"
#include "attend/serve/protocols/fields.h"

namespace attend::serve {

struct Tool {
  std::string name;
  Json parameters;  // a JSON schema; an empty object where none was given
};

enum class ToolFormat {
  kHermes,      // <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>: Qwen 2.5 and 3, Hermes
  kLlama3,      // {"name": ..., "parameters": {...}}, with ; between: Llama 3.1 to 3.3
  kQwen3Coder,  // <tool_call>\n<function=...>\n<parameter=...>\n...: Qwen3-Coder
};

// By SGLang's name or vLLM's: "qwen25", "qwen", "hermes", "llama3", "llama3_json", "qwen3_coder",
// "qwen3_xml". Throws Error(kInvalidArgument) naming those there are.
ToolFormat parse_tool_format(std::string_view name);
// SGLang's name.
std::string_view to_string(ToolFormat format);
// Of a chat template, by what it tells the model to write; nothing if it tells nothing that is known.
std::optional<ToolFormat> find_tool_format(std::string_view chat_template);

// "deepseek-r1", "qwen3" and others: SGLang's names for <think>...</think>. Throws Error(kInvalidArgument)
// for others.
void check_reasoning_parser(std::string_view name);

// Which calls an answer may have, or must.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name;      // of kNamed
  bool parallel = true;  // more than one
};

// "tools", "tool_choice" and "parallel_tool_calls" of a chat. Throws ApiError naming the field.
// With "none" no tools are looked at.
std::vector<Tool> read_tools(const Fields& fields);
ToolChoice read_tool_choice(const Fields& fields, const std::vector<Tool>& tools);

// Of answers that have to be calls, as the format writes them: of kRequired and kNamed.
Grammar tool_grammar(ToolFormat format, const std::vector<Tool>& tools, const ToolChoice& choice);

}  // namespace attend::serve
