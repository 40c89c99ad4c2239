#include "attend/serve/protocols/answer_format.h"

#include <algorithm>
#include <utility>

#include "attend/checkpoint/parse_json.h"
#include "attend/serve/formats/held_back.h"
#include "attend/serve/formats/reasoning.h"

namespace attend::serve {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

// Returns the number of levels of a JSON value.
int json_depth(std::string_view json) {
  int depth = 0, deepest = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_text = !in_text;
    if (in_text) {
      i += c == '\\' ? 1 : 0;
      continue;
    }
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return deepest;
}

// Checks the keywords that describe the members of an object. Other keywords are checked by the grammar, if
// there is one. null counts as absent, as elsewhere.
void check_object_schema(const std::string& where, const Json& schema) {
  const auto find = [&](const char* key) -> const Json* {
    const auto found = schema.find(key);
    return found == schema.end() || found->is_null() ? nullptr : &*found;
  };
  if (const Json* type = find("type");
      type && *type != "object" && !(type->is_array() && std::ranges::find(*type, "object") != type->end()))
    reject(where + ".type", where, ".type ", excerpt(*type), ": expected \"object\"");
  if (const Json* properties = find("properties");
      properties && !(properties->is_object() && std::ranges::all_of(*properties, [](const Json& property) {
                        return property.is_object() || property.is_boolean();
                      })))
    reject(where + ".properties", where, ".properties ", excerpt(*properties),
           ": expected an object whose values are JSON schemas");
  if (const Json* required = find("required");
      required && !(required->is_array() &&
                    std::ranges::all_of(*required, [](const Json& key) { return key.is_string(); })))
    reject(where + ".required", where, ".required ", excerpt(*required), ": expected a list of names");
}

}  // namespace

Tool make_tool(const std::string& where, const std::string& name, const Json* parameters, bool strict,
               const char* schema_key) {
  if (name.empty() || name.size() > 128 || !std::ranges::all_of(name, is_name_character))
    reject(where + ".name", where, ".name ", excerpt(name),
           ": expected 1 to 128 letters, digits, _, - and .");
  if (!parameters) return {name, Json::object(), strict};
  const std::string schema = where + "." + schema_key;
  if (!parameters->is_object())
    reject(schema, schema, " ", excerpt(*parameters), ": expected a JSON schema, an object");
  check_object_schema(schema, *parameters);
  Tool tool{name, *parameters, strict};
  for (const char* key : {"type", "properties", "required"})
    if (const auto found = tool.parameters.find(key); found != tool.parameters.end() && found->is_null())
      tool.parameters.erase(key);
  return tool;
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

void check_call_arguments(const std::string& where, const Json* arguments) {
  if (!arguments || arguments->is_object()) return;
  if (arguments->is_string()) {
    const std::string_view text = trim_front(arguments->get_ref<const std::string&>());
    const std::string_view json = text.substr(0, trimmed_size(text, text.size()));
    if (json.empty() || json == "null") return;
    if (json.front() == '{' && Json::accept(json)) {
      if (json_depth(json) <= kMaxArgumentDepth) return;
      reject_with_code(tool_error::kInvalidCall, where, where,
                       ": expected arguments of a call nested at most ", kMaxArgumentDepth, " levels deep");
    }
  }
  reject_with_code(tool_error::kInvalidCall, where, where, " ", excerpt(*arguments),
                   ": expected a JSON object, or its text");
}

void set_answer_format(std::vector<Tool> tools, ToolChoice choice, bool separates_reasoning,
                       const ChatFormats& formats, GenerationJob& job) {
  choice.parallel &= !formats.single_calls;
  AnswerFormat format;
  if (separates_reasoning) format.reasoning = formats.reasoning;
  if (choice.kind != ToolChoice::Kind::kNone) {
    const bool has_to_call = choice.kind != ToolChoice::Kind::kAuto;
    if (!formats.tools && !has_to_call)
      reject_unsupported("tools", "the model's format of calls is unknown",
                         formats.tools_reason.empty() ? "" : ": ", formats.tools_reason,
                         "; expected a server with --tool-call-parser, tool_choice \"none\", or a "
                         "tool_choice that requires a call");
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
