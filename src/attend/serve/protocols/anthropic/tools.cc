#include "attend/serve/protocols/anthropic/tools.h"

#include <algorithm>
#include <string>

#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/anthropic/conversation.h"

namespace attend::serve {
namespace {

void read_message_tool(const Json& json, const std::string& where, MessageTools& to) {
  const Fields fields(json, where + ".");
  if (const std::string type = fields.string("type").value_or("custom"); type != "custom")
    reject_unsupported(
        where + ".type", excerpt(type),
        ": tools that Anthropic's servers run or define are not supported; expected \"custom\" "
        "with an input_schema");
  const Json* schema = fields.find("input_schema");
  if (!schema) reject(where + ".input_schema", where, ".input_schema: missing; expected a JSON schema");
  if (fields.boolean("defer_loading").value_or(false))
    reject_unsupported(where + ".defer_loading", "tool search is not supported; expected false");
  if (const Json* callers = fields.find("allowed_callers"); callers && *callers != Json({"direct"}))
    reject_unsupported(where + ".allowed_callers", excerpt(*callers),
                       " is not supported; expected [\"direct\"]");
  to.has_cache_control |= has_cache_control(fields);
  add_tool(make_tool(where, fields.string("name").value_or(""), schema,
                     fields.boolean("strict").value_or(false), "input_schema"),
           to.tools);
  Json function = {{"name", to.tools.back().name}};
  if (const auto description = fields.string("description")) function["description"] = *description;
  function["parameters"] = *schema;
  // JSON schema's keyword for examples.
  if (const Json* examples = fields.find("input_examples")) {
    if (!examples->is_array() ||
        !std::ranges::all_of(*examples, [](const Json& example) { return example.is_object(); }))
      reject(where + ".input_examples", where, ".input_examples ", excerpt(*examples),
             ": expected a list of objects");
    function["parameters"]["examples"] = *examples;
  }
  to.for_template.push_back({{"type", "function"}, {"function", std::move(function)}});
}

ToolChoice read_message_choice(const Fields& fields, const std::vector<Tool>& tools) {
  using Calls = ToolChoice::Kind;
  ToolChoice choice{.kind = tools.empty() ? Calls::kNone : Calls::kAuto, .name = {}, .parallel = true};
  const Json* given = fields.find("tool_choice");
  if (!given) return choice;
  const Fields inner(*given, "tool_choice.");
  const std::string type = inner.string("type").value_or("");
  choice.parallel = !inner.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") choice.kind = Calls::kNone;
  if (type == "auto" || type == "none") return choice;
  if (type != "any" && type != "tool")
    reject("tool_choice.type", "tool_choice ", excerpt(*given),
           R"(: expected the type "auto", "any", "tool" or "none")");
  if (tools.empty()) reject("tool_choice", "tool_choice ", excerpt(*given), ": only with tools");
  choice.kind = Calls::kRequired;
  if (type == "any") return choice;
  choice.kind = Calls::kNamed;
  choice.name = inner.string("name").value_or("");
  check_tool_choice("tool_choice.name", choice.name, tools);
  return choice;
}

}  // namespace

MessageTools read_message_tools(const Fields& fields) {
  MessageTools read;
  if (const Json* given = fields.find("tools")) {
    if (!given->is_array()) reject("tools", "tools ", excerpt(*given), ": expected a list");
    for (size_t i = 0; i < given->size(); ++i)
      read_message_tool((*given)[i], "tools[" + std::to_string(i) + "]", read);
  }
  read.choice = read_message_choice(fields, read.tools);
  if (read.choice.kind == ToolChoice::Kind::kNone) read.tools.clear();
  return read;
}

}  // namespace attend::serve
