#include "attend/serve/protocols/openai/tool_fields.h"

#include <algorithm>

namespace attend::serve {
namespace {

Tool read_tool(const Json& json, const std::string& where) {
  const Fields fields(json, where + ".");
  if (const std::string type = fields.string("type").value_or(""); type != "function")
    reject_unsupported(where + ".type", "\"", type, "\" is not supported; expected \"function\"");
  const Json* function = fields.find("function");
  if (!function) reject(where + ".function", where, ".function: missing");
  const Fields inner(*function, where + ".function.");
  const std::string name = inner.string("name").value_or("");
  const auto may_stand = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  if (name.empty() || name.size() > 128 || !std::all_of(name.begin(), name.end(), may_stand))
    reject(where + ".function.name", where, ".function.name ", excerpt(name),
           ": expected 1 to 128 letters, digits, _, - and .");
  const Json* parameters = inner.find("parameters");
  if (parameters && !parameters->is_object())
    reject(where + ".function.parameters", where, ".function.parameters ", excerpt(*parameters),
           ": expected a JSON schema, an object");
  return {name, parameters ? *parameters : Json::object(), inner.boolean("strict").value_or(false)};
}

}  // namespace

std::vector<Tool> read_tools(const Fields& fields) {
  const Json* given = fields.find("tools");
  if (!given) return {};
  if (!given->is_array()) reject("tools", "tools ", excerpt(*given), ": expected a list");
  std::vector<Tool> tools;
  const Json* choice = fields.find("tool_choice");
  if (choice && *choice == "none") return tools;
  for (size_t i = 0; i < given->size(); ++i) {
    Tool tool = read_tool((*given)[i], "tools[" + std::to_string(i) + "]");
    if (std::ranges::any_of(tools, [&](const Tool& other) { return other.name == tool.name; }))
      reject("tools", "tools: duplicate name ", excerpt(tool.name));
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
  if (tools.empty()) reject("tool_choice", "tool_choice ", excerpt(*given), ": only with tools");
  if (*given == "required") {
    choice.kind = Kind::kRequired;
    return choice;
  }
  if (!given->is_object())
    reject("tool_choice", "tool_choice ", excerpt(*given),
           R"(: expected "none", "auto", "required" or {"type": "function", "function": {"name": ...}})");
  const Fields named(*given, "tool_choice.");
  const Json* function = named.find("function");
  if (!function) reject("tool_choice.function", "tool_choice.function: missing");
  const Fields inner(*function, "tool_choice.function.");
  choice.kind = Kind::kNamed;
  choice.name = inner.string("name").value_or("");
  if (std::ranges::none_of(tools, [&](const Tool& tool) { return tool.name == choice.name; }))
    reject("tool_choice.function.name", "tool_choice.function.name ", excerpt(choice.name),
           ": expected one of the tools");
  return choice;
}

}  // namespace attend::serve
