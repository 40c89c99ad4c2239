#include "attend/serve/formats/tools.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend::serve {
namespace {

struct FormatName {
  std::string_view name;
  ToolFormat format;
};
// Of each format, SGLang's name is first.
constexpr FormatName kNames[] = {
    {"qwen25", ToolFormat::kHermes},       {"qwen", ToolFormat::kHermes},
    {"hermes", ToolFormat::kHermes},       {"llama3", ToolFormat::kLlama3},
    {"llama3_json", ToolFormat::kLlama3},  {"qwen3_coder", ToolFormat::kQwen3Coder},
    {"qwen3_xml", ToolFormat::kQwen3Coder}};

Tool read_tool(const Json& json, const std::string& where) {
  const Fields fields(json, where + ".");
  if (const std::string type = fields.string("type").value_or(""); type != "function")
    refuse_unsupported(where + ".type", "\"", type, "\" is not supported; expected \"function\"");
  const Json* function = fields.find("function");
  if (!function) refuse(where + ".function", where, ".function: missing");
  const Fields inner(*function, where + ".function.");
  const std::string name = inner.string("name").value_or("");
  const auto may_stand = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  if (name.empty() || name.size() > 128 || !std::all_of(name.begin(), name.end(), may_stand))
    refuse(where + ".function.name", where, ".function.name ", excerpt(name),
           ": expected 1 to 128 letters, digits, _, - and .");
  const Json* parameters = inner.find("parameters");
  if (parameters && !parameters->is_object())
    refuse(where + ".function.parameters", where, ".function.parameters ", excerpt(*parameters),
           ": expected a JSON schema, an object");
  return {name, parameters ? *parameters : Json::object()};
}

// A call of the tool as a structural tag of xgrammar.
Json tag_of(ToolFormat format, const Tool& tool) {
  // Without a type a schema would take any JSON.
  Json schema =
      tool.parameters.empty() ? Json{{"type", "object"}, {"properties", Json::object()}} : tool.parameters;
  if (!schema.contains("type") && schema.contains("properties")) schema["type"] = "object";
  std::string begin, end;
  Json content = {{"type", "json_schema"}, {"json_schema", schema}, {"max_whitespace_cnt", 32}};
  switch (format) {
    case ToolFormat::kHermes:
      begin = "<tool_call>\n{\"name\": \"" + tool.name + "\", \"arguments\": ";
      end = "}\n</tool_call>";
      break;
    case ToolFormat::kLlama3:
      begin = "{\"name\": \"" + tool.name + "\", \"parameters\": ";
      end = "}";
      break;
    case ToolFormat::kQwen3Coder:
      begin = "<tool_call>\n<function=" + tool.name + ">\n";
      end = "\n</function>\n</tool_call>";
      content = {{"type", "qwen_xml_parameter"}, {"json_schema", schema}};
      break;
  }
  return {{"type", "tag"}, {"begin", begin}, {"content", content}, {"end", end}};
}

}  // namespace

ToolFormat parse_tool_format(std::string_view name) {
  std::string names;
  for (const FormatName& known : kNames) {
    if (known.name == name) return known.format;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  fail(ErrorCode::kInvalidArgument, "--tool-call-parser ", name, ": expected one of ", names);
}

std::string_view to_string(ToolFormat format) {
  for (const FormatName& known : kNames)
    if (known.format == format) return known.name;
  return "";
}

std::optional<ToolFormat> find_tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
  if (has("<tool_call>")) return has("<function=") ? ToolFormat::kQwen3Coder : ToolFormat::kHermes;
  if (has("<|python_tag|>") || (has("\"parameters\"") && has("<|eot_id|>"))) return ToolFormat::kLlama3;
  return std::nullopt;
}

void check_reasoning_parser(std::string_view name) {
  constexpr std::string_view kNamesOfTags[] = {"deepseek-r1", "deepseek_r1", "qwen3", "qwen3-thinking"};
  if (std::ranges::find(kNamesOfTags, name) == std::end(kNamesOfTags))
    fail(ErrorCode::kInvalidArgument, "--reasoning-parser ", name,
         ": expected deepseek-r1, qwen3 or qwen3-thinking, which read <think>...</think>");
}

std::vector<Tool> read_tools(const Fields& fields) {
  const Json* given = fields.find("tools");
  if (!given) return {};
  if (!given->is_array()) refuse("tools", "tools ", excerpt(*given), ": expected a list");
  std::vector<Tool> tools;
  const Json* choice = fields.find("tool_choice");
  if (choice && *choice == "none") return tools;
  for (size_t i = 0; i < given->size(); ++i) {
    Tool tool = read_tool((*given)[i], "tools[" + std::to_string(i) + "]");
    if (std::ranges::any_of(tools, [&](const Tool& other) { return other.name == tool.name; }))
      refuse("tools", "tools: two are called ", excerpt(tool.name));
    tools.push_back(std::move(tool));
  }
  return tools;
}

ToolChoice read_tool_choice(const Fields& fields, const std::vector<Tool>& tools) {
  using Kind = ToolChoice::Kind;
  ToolChoice choice{.kind = tools.empty() ? Kind::kNone : Kind::kAuto, .name = {}, .parallel = true};
  choice.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* given = fields.find("tool_choice");
  if (!given || *given == "auto") return choice;
  if (*given == "none") {
    choice.kind = Kind::kNone;
    return choice;
  }
  if (tools.empty()) refuse("tool_choice", "tool_choice ", excerpt(*given), ": only with tools");
  if (*given == "required") {
    choice.kind = Kind::kRequired;
    return choice;
  }
  if (!given->is_object())
    refuse("tool_choice", "tool_choice ", excerpt(*given),
           R"(: expected "none", "auto", "required" or {"type": "function", "function": {"name": ...}})");
  const Fields named(*given, "tool_choice.");
  const Json* function = named.find("function");
  if (!function) refuse("tool_choice.function", "tool_choice.function: missing");
  const Fields inner(*function, "tool_choice.function.");
  choice.kind = Kind::kNamed;
  choice.name = inner.string("name").value_or("");
  if (std::ranges::none_of(tools, [&](const Tool& tool) { return tool.name == choice.name; }))
    refuse("tool_choice.function.name", "tool_choice.function.name ", excerpt(choice.name),
           ": expected one of the tools");
  return choice;
}

Grammar tool_grammar(ToolFormat format, const std::vector<Tool>& tools, const ToolChoice& choice) {
  const bool named = choice.kind == ToolChoice::Kind::kNamed;
  Json tags = Json::array();
  for (const Tool& tool : tools)
    if (!named || tool.name == choice.name) tags.push_back(tag_of(format, tool));
  const bool one = named || !choice.parallel;
  const Json tag = {{"type", "structural_tag"},
                    {"format",
                     {{"type", "tags_with_separator"},
                      {"tags", tags},
                      {"separator", format == ToolFormat::kLlama3 ? "; " : "\n"},
                      {"at_least_one", true},
                      {"stop_after_first", one}}}};
  return {GrammarKind::kStructuralTag, tag.dump()};
}

}  // namespace attend::serve
