#include "attend/serve/protocols/openai/tool_fields.h"

#include "attend/serve/protocols/answer_format.h"

namespace attend::serve {
namespace {

Tool read_tool(const Json& json, const std::string& where) {
  const Fields fields(json, where + ".");
  const auto type = fields.string("type");
  if (!type) reject(where + ".type", where, ".type: missing; expected \"function\"");
  if (*type != "function")
    reject_unsupported(where + ".type", excerpt(*type), " is not supported; expected \"function\"");
  const Json* function = fields.find("function");
  if (!function) reject(where + ".function", where, ".function: missing");
  const Fields inner(*function, where + ".function.");
  inner.string("description");
  return make_tool(where + ".function", inner.string("name").value_or(""), inner.find("parameters"),
                   inner.boolean("strict").value_or(false));
}

}  // namespace

std::vector<Tool> read_tools(const Fields& fields) {
  const Json* given = fields.find("tools");
  if (!given) return {};
  if (!given->is_array()) reject("tools", "tools ", excerpt(*given), ": expected a list");
  std::vector<Tool> tools;
  const Json* choice = fields.find("tool_choice");
  if (choice && *choice == "none") return tools;
  for (size_t i = 0; i < given->size(); ++i)
    add_tool(read_tool((*given)[i], "tools[" + std::to_string(i) + "]"), tools);
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
  if (const std::string type = named.string("type").value_or("function"); type != "function")
    reject_unsupported(
        "tool_choice.type", excerpt(type),
        R"( is not supported; expected "function", or tool_choice "none", "auto" or "required")");
  const Json* function = named.find("function");
  if (!function) reject("tool_choice.function", "tool_choice.function: missing");
  const Fields inner(*function, "tool_choice.function.");
  choice.kind = Kind::kNamed;
  choice.name = inner.string("name").value_or("");
  check_tool_choice("tool_choice.function.name", choice.name, tools);
  return choice;
}

}  // namespace attend::serve
