#include "attend/serve/protocols/responses/response_tools.h"

#include <fmt/format.h>

#include <utility>

#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/responses/input_items.h"

namespace attend::serve {
namespace {

// Schema of a custom tool, which the model calls like a function.
Json custom_parameters() {
  return {{"type", "object"},
          {"properties", {{kCustomInput, {{"type", "string"}}}}},
          {"required", Json::array({kCustomInput})},
          {"additionalProperties", false}};
}

void read_tool(const Json& json, const std::string& where, ResponseTools& read) {
  const Fields fields(json, where + ".");
  const std::string type = fields.string("type").value_or("");
  const bool is_custom = type == "custom";
  if (type != "function" && !is_custom)
    reject_unsupported(where + ".type", excerpt(type),
                       " is not supported: attend runs no tools itself; expected \"function\" or \"custom\"");
  for (const char* key : {"async", "defer_loading"})
    if (fields.boolean(key).value_or(false)) reject_unsupported(fields.name(key), "not supported");
  if (const Json* callers = fields.find("allowed_callers"); callers && *callers != Json({"direct"}))
    reject_unsupported(fields.name("allowed_callers"), "not supported; expected [\"direct\"]");
  if (const Json* format = fields.find("format"); format && is_custom)
    if (const Fields inner(*format, fields.name("format") + "."); inner.string("type") != "text")
      reject_unsupported(inner.name("type"), excerpt(inner.string("type").value_or("")),
                         " is not supported; expected \"text\"");
  const Json custom = custom_parameters();
  const Json* parameters = is_custom ? &custom : fields.find("parameters");
  Tool tool = make_tool(where, fields.string("name").value_or(""), parameters,
                        fields.boolean("strict").value_or(false));
  Json function = {{"name", tool.name}};
  if (const auto description = fields.string("description")) function["description"] = *description;
  if (parameters) function["parameters"] = *parameters;
  read.described.push_back({{"type", "function"}, {"function", std::move(function)}});
  if (is_custom) read.custom.insert(tool.name);
  add_tool(std::move(tool), read.tools);
}

// Reads {"type": "function" or "custom", "name"}. Returns the name.
std::string read_named(const Fields& fields, const ResponseTools& read) {
  const std::string type = fields.string("type").value_or("");
  if (type != "function" && type != "custom")
    reject_unsupported(fields.name("type"), excerpt(type),
                       " is not supported; expected \"function\", \"custom\" or \"allowed_tools\"");
  const std::string name = fields.string("name").value_or("");
  check_tool_choice(fields.name("name"), name, read.tools);
  if (read.custom.contains(name) != (type == "custom"))
    reject(fields.name("type"), fields.name("type"), " ", excerpt(type), ": the tool ", excerpt(name),
           " has another type");
  return name;
}

// Removes the tools that are not in the list.
void read_allowed(const Fields& fields, ResponseTools& read) {
  const std::string mode = fields.string("mode").value_or("auto");
  if (mode != "auto" && mode != "required")
    reject(fields.name("mode"), fields.name("mode"), " ", excerpt(mode),
           ": expected \"auto\" or \"required\"");
  read.choice.kind = mode == "required" ? ToolChoice::Kind::kRequired : ToolChoice::Kind::kAuto;
  const Json* allowed = fields.find("tools");
  if (!allowed || !allowed->is_array() || allowed->empty())
    reject(fields.name("tools"), fields.name("tools"), ": expected a list of at least one tool");
  std::set<std::string> names;
  for (size_t i = 0; i < allowed->size(); ++i)
    names.insert(read_named(Fields((*allowed)[i], fmt::format("{}[{}].", fields.name("tools"), i)), read));
  std::erase_if(read.tools, [&](const Tool& tool) { return !names.contains(tool.name); });
}

void read_choice(const Json& given, ResponseTools& read) {
  if (given == "auto") return;
  if (given == "none") {
    read.choice.kind = ToolChoice::Kind::kNone;
    return;
  }
  if (read.tools.empty()) reject("tool_choice", "tool_choice ", excerpt(given), ": only with tools");
  if (given == "required") {
    read.choice.kind = ToolChoice::Kind::kRequired;
    return;
  }
  if (!given.is_object())
    reject("tool_choice", "tool_choice ", excerpt(given),
           R"(: expected "none", "auto", "required", {"type": "function", "name": ...}, )",
           R"({"type": "custom", "name": ...} or {"type": "allowed_tools", ...})");
  const Fields fields(given, "tool_choice.");
  if (fields.string("type") == "allowed_tools") return read_allowed(fields, read);
  read.choice.name = read_named(fields, read);
  read.choice.kind = ToolChoice::Kind::kNamed;
}

}  // namespace

ResponseTools read_response_tools(const Fields& fields) {
  ResponseTools read;
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) reject("tools", "tools ", excerpt(*tools), ": expected a list");
    for (size_t i = 0; i < tools->size(); ++i) read_tool((*tools)[i], fmt::format("tools[{}]", i), read);
  }
  read.choice.kind = read.tools.empty() ? ToolChoice::Kind::kNone : ToolChoice::Kind::kAuto;
  read.choice.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (const Json* choice = fields.find("tool_choice")) read_choice(*choice, read);
  if (read.choice.kind == ToolChoice::Kind::kNone) read.tools.clear();
  return read;
}

}  // namespace attend::serve
