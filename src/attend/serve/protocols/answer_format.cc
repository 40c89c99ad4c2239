#include "attend/serve/protocols/answer_format.h"

#include <algorithm>
#include <utility>

#include "attend/checkpoint/parse_json.h"
#include "attend/serve/formats/reasoning.h"

namespace attend::serve {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

}  // namespace

Tool make_tool(const std::string& where, const std::string& name, const Json* parameters, bool strict) {
  if (name.empty() || name.size() > 128 || !std::ranges::all_of(name, is_name_character))
    reject(where + ".name", where, ".name ", excerpt(name),
           ": expected 1 to 128 letters, digits, _, - and .");
  if (parameters && !parameters->is_object())
    reject(where + ".parameters", where, ".parameters ", excerpt(*parameters),
           ": expected a JSON schema, an object");
  return {name, parameters ? *parameters : Json::object(), strict};
}

void add_tool(Tool tool, std::vector<Tool>& tools) {
  // Each tool is compared with the others.
  constexpr size_t kMaxTools = 2048;
  if (tools.size() == kMaxTools) reject("tools", "tools: expected at most ", kMaxTools);
  if (find_tool(tools, tool.name))
    reject_with_code(tool_error::kDuplicateTool, "tools", "tools: duplicate name ", excerpt(tool.name));
  tools.push_back(std::move(tool));
}

void check_tool_choice(const std::string& where, const std::string& name, const std::vector<Tool>& tools) {
  if (!find_tool(tools, name))
    reject_with_code(tool_error::kUnknownTool, where, where, " ", excerpt(name),
                     ": expected one of the tools");
}

void set_answer_format(std::vector<Tool> tools, const ToolChoice& choice, bool separates_reasoning,
                       const ChatFormats& formats, GenerationJob& job) {
  AnswerFormat format;
  if (separates_reasoning) format.reasoning = formats.reasoning;
  if (choice.kind != ToolChoice::Kind::kNone) {
    const bool has_to_call = choice.kind != ToolChoice::Kind::kAuto;
    if (!formats.tools && !has_to_call)
      reject_unsupported("tools", "the model's format of calls is unknown",
                         formats.tools_reason.empty() ? "" : ": ", formats.tools_reason,
                         "; expected a server with --tool-call-parser, or tool_choice \"none\" or "
                         "\"required\"");
    // With a grammar, the model writes JSON calls even if it has no known format.
    format.tool_format = formats.tools ? formats.tools : &parse_tool_format("llama3");
    if (has_to_call && job.grammar)
      reject("tool_choice", "tool_choice: ", job.grammar->param, " already sets the format of the text");
    if (has_to_call)
      job.grammar = {tool_grammar(*format.tool_format, tools, choice, formats.marker_tokens), "tools"};
    if (!has_to_call && job.grammar && job.grammar->grammar.kind == GrammarKind::kJsonSchema &&
        format.tool_format->structure != ToolFormat::Structure::kChannels)
      job.grammar->grammar = tool_or_json_grammar(
          *format.tool_format, tools, choice.parallel,
          parse_ordered_json(job.grammar->grammar.text, job.grammar->param), formats.marker_tokens);
    const bool strict = std::ranges::any_of(tools, [](const Tool& tool) { return tool.strict; });
    if (!has_to_call && strict && formats.grammars && !job.grammar &&
        supports_free_text(*format.tool_format, formats.marker_tokens))
      job.grammar = {tool_grammar(*format.tool_format, tools, choice, formats.marker_tokens), "tools"};
    format.parallel = choice.parallel && choice.kind != ToolChoice::Kind::kNamed;
    format.tools = std::move(tools);
  }
  // Markers that are special tokens must be part of the text that is parsed.
  const bool special_calls =
      format.tool_format && (format.tool_format->special || !formats.marker_tokens.empty());
  const bool special_reasoning =
      format.reasoning && (format.reasoning->special || formats.has_special_reasoning);
  if (special_reasoning || special_calls) job.params.skip_special_tokens = false;
  if (format.reasoning || !format.tools.empty()) job.answer = std::move(format);
}

}  // namespace attend::serve
