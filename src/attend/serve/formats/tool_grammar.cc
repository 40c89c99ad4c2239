// Grammars of tool calls, derived from the records of the formats.
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {
namespace {

using Arguments = ToolFormat::Arguments;

// Argument lists of a Python call and of Gemma 4, without the tool's schema: xgrammar has no style for them.
constexpr std::string_view kKeywordRules = R"G(root ::= "" | item (", " item)*
item ::= [a-zA-Z_] [a-zA-Z0-9_]* "=" value
value ::= "True" | "False" | "None" | "-"? [0-9]+ ("." [0-9]+)? | text | "[" (value (", " value)*)? "]" | "{" (text ": " value (", " text ": " value)*)? "}"
text ::= "'" ([^'\\\n] | "\\" ['\\nt])* "'" | "\"" ([^"\\\n] | "\\" ["\\nt])* "\""
)G";
constexpr std::string_view kQuotedRules = R"G(root ::= object
object ::= "{" (pair ("," pair)*)? "}"
pair ::= [a-zA-Z_] [a-zA-Z0-9_]* ":" value
value ::= "true" | "false" | "null" | "-"? [0-9]+ ("." [0-9]+)? | "<|\"|>" [^<]* "<|\"|>" | "[" (value ("," value)*)? "]" | object
)G";

// A schema without a type accepts any JSON; arguments are an object.
Json arguments_schema(const Tool& tool) {
  if (tool.parameters.empty()) return {{"type", "object"}, {"properties", Json::object()}};
  Json schema = tool.parameters;
  if (!schema.contains("type") && schema.contains("properties")) schema["type"] = "object";
  return schema;
}

Json content(const ToolFormat& format, const Tool& tool) {
  switch (format.arguments) {
    case Arguments::kKeyword:
      return {{"type", "grammar"}, {"grammar", std::string(kKeywordRules)}};
    case Arguments::kQuoted:
      return {{"type", "grammar"}, {"grammar", std::string(kQuotedRules)}};
    case Arguments::kTags:
      if (format.tags.grammar.empty()) return {{"type", "any_text"}};
      if (format.tags.grammar == "qwen_xml")
        return {{"type", "qwen_xml_parameter"}, {"json_schema", arguments_schema(tool)}};
      return {{"type", "json_schema"},
              {"json_schema", arguments_schema(tool)},
              {"style", std::string(format.tags.grammar)}};
    case Arguments::kJson:
      break;
  }
  return {{"type", "json_schema"}, {"json_schema", arguments_schema(tool)}, {"max_whitespace_cnt", 32}};
}

Json call_tag(const ToolFormat& format, const Tool& tool, std::string_view before) {
  const ToolFormat::Written& written = format.written;
  return {
      {"type", "tag"},
      {"begin", std::string(before) + std::string(written.begin) + tool.name + std::string(written.middle)},
      {"content", content(format, tool)},
      {"end", std::string(written.end)}};
}

// Format of a structural tag for answers that are or contain calls.
Json calls(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice) {
  const ToolFormat::Written& written = format.written;
  const bool one = choice.kind == ToolChoice::Kind::kNamed || !choice.parallel;
  const bool free_text = choice.kind == ToolChoice::Kind::kAuto;
  Json tags = Json::array();
  for (const Tool& tool : tools) {
    if (choice.kind == ToolChoice::Kind::kNamed && tool.name != choice.name) continue;
    tags.push_back(call_tag(format, tool, ""));
  }
  Json inner;
  if (free_text) {
    // The grammar begins with the text that precedes a name.
    const std::string trigger(written.begin.empty() ? written.before : written.begin);
    inner = {{"type", "triggered_tags"},
             {"triggers", Json::array({trigger})},
             {"tags", tags},
             {"at_least_one", false},
             {"stop_after_first", one}};
    if (written.begin.empty())
      for (Json& tag : inner["tags"])
        tag["begin"] = std::string(written.before) + tag["begin"].get<std::string>();
  } else {
    inner = {{"type", "tags_with_separator"},
             {"tags", tags},
             {"separator", std::string(written.between)},
             {"at_least_one", true},
             {"stop_after_first", one}};
    if (!written.before.empty() || !written.after.empty()) {
      Json elements = Json::array();
      if (!written.before.empty())
        elements.push_back({{"type", "const_string"}, {"value", std::string(written.before)}});
      elements.push_back(inner);
      if (!written.after.empty())
        elements.push_back({{"type", "const_string"}, {"value", std::string(written.after)}});
      inner = {{"type", "sequence"}, {"elements", elements}};
    }
  }
  return inner;
}

Grammar structural_tag(const Json& format) {
  const Json tag = {{"type", "structural_tag"}, {"format", format}};
  return {GrammarKind::kStructuralTag, tag.dump()};
}

}  // namespace

bool supports_free_text(const ToolFormat& format) {
  return !format.at_start && format.structure != ToolFormat::Structure::kChannels;
}

Grammar tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice) {
  return structural_tag(calls(format, tools, choice));
}

Grammar tool_or_json_grammar(const ToolFormat& format, const std::vector<Tool>& tools, bool parallel,
                             const Json& schema) {
  const ToolChoice choice{.kind = ToolChoice::Kind::kRequired, .name = {}, .parallel = parallel};
  const Json json = {{"type", "json_schema"}, {"json_schema", schema}, {"max_whitespace_cnt", 32}};
  return structural_tag({{"type", "or"}, {"elements", Json::array({json, calls(format, tools, choice)})}});
}

}  // namespace attend::serve
