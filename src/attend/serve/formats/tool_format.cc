#include "attend/serve/formats/tool_format.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend::serve {
namespace {

// Formats in order of detection: the first one that matches a chat template is used.
constexpr const ToolFormat* kToolFormats[] = {&kHermesFormat, &kQwen3CoderFormat, &kLlama3Format};

}  // namespace

const ToolFormat& parse_tool_format(std::string_view name) {
  std::string all_names;
  for (const ToolFormat* format : kToolFormats)
    for (const std::string_view known : format->names) {
      if (known == name) return *format;
      all_names += (all_names.empty() ? "" : ", ") + std::string(known);
    }
  fail(ErrorCode::kInvalidArgument, "--tool-call-parser ", name, ": expected one of ", all_names);
}

const ToolFormat* find_tool_format(std::string_view chat_template) {
  const auto found = std::ranges::find_if(
      kToolFormats, [&](const ToolFormat* format) { return format->is_in_template(chat_template); });
  return found == std::end(kToolFormats) ? nullptr : *found;
}

const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto found = std::ranges::find_if(tools, [&](const Tool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

Json json_call_tag(const std::string& begin, const Json& schema, const std::string& end) {
  return {{"type", "tag"},
          {"begin", begin},
          {"content", {{"type", "json_schema"}, {"json_schema", schema}, {"max_whitespace_cnt", 32}}},
          {"end", end}};
}

Grammar tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice) {
  const bool named = choice.kind == ToolChoice::Kind::kNamed;
  Json tags = Json::array();
  for (const Tool& tool : tools) {
    if (named && tool.name != choice.name) continue;
    // A schema without a type accepts any JSON.
    Json schema =
        tool.parameters.empty() ? Json{{"type", "object"}, {"properties", Json::object()}} : tool.parameters;
    if (!schema.contains("type") && schema.contains("properties")) schema["type"] = "object";
    tags.push_back(format.call_tag(tool.name, schema));
  }
  const bool one = named || !choice.parallel;
  const Json tag = {{"type", "structural_tag"},
                    {"format",
                     {{"type", "tags_with_separator"},
                      {"tags", tags},
                      {"separator", std::string(format.separator)},
                      {"at_least_one", true},
                      {"stop_after_first", one}}}};
  return {GrammarKind::kStructuralTag, tag.dump()};
}

}  // namespace attend::serve
