// Grammars of tool calls, derived from the records of the formats.
#include <algorithm>
#include <iterator>
#include <utility>

#include "attend/serve/formats/tag_arguments.h"
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
value ::= "true" | "false" | "null" | "-"? [0-9]+ ("." [0-9]+)? | "QUOTE" [^<]* "QUOTE" | "[" (value ("," value)*)? "]" | object
)G";

// A schema without a type accepts any JSON; arguments are an object.
Json arguments_schema(const Tool& tool) {
  if (tool.parameters.empty()) return {{"type", "object"}, {"properties", Json::object()}};
  Json schema = tool.parameters;
  if (!schema.contains("type") && schema.contains("properties")) schema["type"] = "object";
  return schema;
}

Json const_string(std::string_view text) { return {{"type", "const_string"}, {"value", std::string(text)}}; }
Json any_text() { return {{"type", "any_text"}}; }
Json sequence(Json elements) {
  if (elements.size() == 1) return elements[0];
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}
Json one_of(Json elements) {
  if (elements.size() == 1) return elements[0];
  return {{"type", "or"}, {"elements", std::move(elements)}};
}
// Every schema limits the spaces between its elements, since a model may prefer a space without end.
// `style`: xgrammar's name of another notation than JSON.
Json schema_content(const Json& schema, std::string_view style = {}) {
  Json content = {{"type", "json_schema"}, {"json_schema", schema}, {"max_whitespace_cnt", 32}};
  if (!style.empty()) content["style"] = std::string(style);
  return content;
}

// Writes the grammar of a format. Markers that are special tokens are elements of their own.
class GrammarWriter {
 public:
  GrammarWriter(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice,
                const MarkerTokens& tokens)
      : format_(format), written_(format.written), choice_(choice), tokens_(tokens) {
    for (const Tool& tool : tools)
      if (choice.kind != ToolChoice::Kind::kNamed || tool.name == choice.name) tools_.push_back(&tool);
  }

  Json answer() const {
    const bool free_text = choice_.kind == ToolChoice::Kind::kAuto;
    if (format_.structure == ToolFormat::Structure::kChannels && !tokens_.empty())
      return free_text ? channels_with_text() : channels();
    if (free_text && format_.at_start) return start_or_text();
    if (tokens_.empty()) return free_text ? text_with_tags() : tags();
    return free_text ? text_with_tokens() : sequence(calls());
  }

 private:
  bool one() const { return choice_.kind == ToolChoice::Kind::kNamed || !choice_.parallel; }

  Json token(std::string_view text) const {
    for (const auto& [known, id] : tokens_)
      if (known == text) return {{"type", "token"}, {"token", id}};
    return const_string(text);
  }

  // Appends elements that match the text.
  void add_text(std::string_view text, Json& elements) const {
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      size_t size = 0;
      for (const auto& [known, id] : tokens_)
        if (text.substr(at).starts_with(known)) size = std::max(size, known.size());
      if (size == 0) {
        ++at;
        continue;
      }
      if (at > begin) elements.push_back(const_string(text.substr(begin, at - begin)));
      elements.push_back(token(text.substr(at, size)));
      begin = at += size;
    }
    if (begin < text.size()) elements.push_back(const_string(text.substr(begin)));
  }

  // Appends text of any length between two markers.
  void add_any_text(std::string_view open, std::string_view close, Json& elements) const {
    Json opening = Json::array(), closing = Json::array();
    add_text(open, opening);
    add_text(close, closing);
    const auto marker = [](const Json& element) {
      return element["type"] == "token" ? element : element["value"];
    };
    for (size_t i = 0; i + 1 < opening.size(); ++i) elements.push_back(opening[i]);
    elements.push_back({{"type", "tag"},
                        {"begin", marker(opening.back())},
                        {"content", any_text()},
                        {"end", marker(closing.front())}});
    for (size_t i = 1; i < closing.size(); ++i) elements.push_back(closing[i]);
  }

  // Integers are numbers.
  static std::string json_mark(const ToolFormat::Tags& tags, const std::string& type) {
    constexpr std::string_view kType = "TYPE";
    std::string mark(tags.json_mark);
    if (const size_t at = mark.find(kType); at != std::string::npos)
      mark.replace(at, kType.size(), type == "integer" ? "number" : type);
    return mark;
  }

  // Returns the element of a parameter; `key`: Jsons of its name.
  Json parameter(const Json& key, const Json& given, const Json& schema) const {
    const ToolFormat::Tags& tags = format_.tags;
    // The schema `true` accepts any value.
    const Json property = given.is_object() ? given : Json::object();
    const std::string type =
        property.value("type", Json()).is_string() ? property["type"].get<std::string>() : "";
    const bool json = !type.empty() && type != "string";
    const bool listed = type == "string" && property.contains("enum");
    std::string open;
    if (tags.key_open.ends_with('"')) open += '"';
    open += json ? json_mark(tags, type) : std::string(tags.text_mark);
    open += tags.key_close;
    if (!tags.value_open.empty()) open += std::string(tags.between) + std::string(tags.value_open);
    if (tags.lines) open += '\n';
    const std::string close = (tags.lines ? "\n" : "") + std::string(tags.value_close);
    Json elements = Json::array();
    add_text(tags.key_open, elements);
    elements.push_back(key);
    if (json || listed) {
      add_text(open, elements);
      if (json) {
        Json inner = property;
        if (const auto defs = schema.find("$defs"); defs != schema.end()) inner["$defs"] = *defs;
        elements.push_back(schema_content(inner));
      } else {
        elements.push_back(listed_texts(property["enum"]));
      }
      add_text(close, elements);
    } else {
      add_any_text(open, close, elements);
    }
    add_text(tags.between, elements);
    return sequence(std::move(elements));
  }

  // Returns an element of kElements with the elements of its members or items. Values whose schema does not
  // have one type are any text.
  // `num_left`: elements that may have a content of their own, since schemas may be recursive.
  Json nested_element(const std::string& key, const Json& property, const Json& root, int level,
                      int& num_left) const {
    constexpr int kMaxLevels = 8;
    const ToolFormat::Tags& tags = format_.tags;
    const std::string open = std::string(tags.key_open) + key + std::string(tags.key_close),
                      close = std::string(tags.value_close) + key + std::string(tags.key_close);
    const bool is_left = level < kMaxLevels && --num_left >= 0;
    if (is_left && property.is_object() && property.contains("$ref"))
      if (const Json* target = resolve_reference(property["$ref"], root))
        return nested_element(key, *target, root, level + 1, num_left);
    const Json type = property.is_object() ? property.value("type", Json()) : Json();
    Json content;
    if (is_left && type == "object" && property.contains("properties") &&
        property["properties"].size() <= static_cast<size_t>(num_left))
      content = nested_members(property, root, level + 1, num_left);
    else if (is_left && type == "array" && property.contains("items"))
      content = {{"type", "star"},
                 {"content", nested_element("item", property["items"], root, level + 1, num_left)}};
    else if (type == "string" && property.contains("enum"))
      content = listed_texts(property["enum"]);
    else if (type == "number" || type == "integer" || type == "boolean")
      content = schema_content(property);
    Json elements = Json::array();
    if (content.is_null()) {
      add_any_text(open, close, elements);
    } else {
      add_text(open, elements);
      elements.push_back(std::move(content));
      add_text(close, elements);
    }
    return sequence(std::move(elements));
  }

  // Returns the elements of an object's members in the schema's order.
  Json nested_members(const Json& object, const Json& root, int level, int& num_left) const {
    const Json required = object.value("required", Json::array());
    Json elements = Json::array();
    if (const auto properties = object.find("properties"); properties != object.end())
      for (const auto& [key, property] : properties->items()) {
        Json element = nested_element(key, property, root, level, num_left);
        const bool optional = std::ranges::find(required, Json(key)) == required.end();
        elements.push_back(optional ? Json{{"type", "optional"}, {"content", element}} : std::move(element));
      }
    if (elements.empty()) elements.push_back({{"type", "optional"}, {"content", const_string("\n")}});
    return sequence(std::move(elements));
  }

  static Json listed_texts(const Json& values) {
    Json texts = Json::array();
    for (const Json& value : values)
      texts.push_back(const_string(value.is_string() ? value.get<std::string>() : json_text(value)));
    return one_of(std::move(texts));
  }

  // Returns the elements of all parameters in the schema's order.
  Json parameters(const Tool& tool) const {
    const Json schema = arguments_schema(tool);
    Json elements = Json::array();
    if (const auto properties = schema.find("properties"); properties != schema.end()) {
      const Json required = schema.value("required", Json::array());
      for (const auto& [key, property] : properties->items()) {
        Json element = parameter(const_string(key), property, schema);
        const bool optional = std::ranges::find(required, Json(key)) == required.end();
        elements.push_back(optional ? Json{{"type", "optional"}, {"content", element}} : std::move(element));
      }
    } else {
      const Json key = {{"type", "regex"}, {"pattern", "[a-zA-Z_][a-zA-Z0-9_-]*"}};
      elements.push_back({{"type", "star"}, {"content", parameter(key, Json::object(), schema)}});
    }
    if (elements.empty()) elements.push_back({{"type", "optional"}, {"content", const_string("\n")}});
    return sequence(std::move(elements));
  }

  Json content(const Tool& tool) const {
    switch (format_.arguments) {
      case Arguments::kKeyword:
        return {{"type", "grammar"}, {"grammar", std::string(kKeywordRules)}};
      case Arguments::kQuoted: {
        const Json quote = token(format_.quote);
        if (quote["type"] == "token") return quoted_object();
        std::string rules(kQuotedRules);
        for (size_t at; (at = rules.find("QUOTE")) != std::string::npos;) {
          std::string escaped;
          for (const char c : format_.quote) escaped += c == '"' ? "\\\"" : std::string(1, c);
          rules.replace(at, 5, escaped);
        }
        return {{"type", "grammar"}, {"grammar", rules}};
      }
      case Arguments::kTags: {
        Json marker = Json::array();
        add_text(format_.tags.key_open, marker);
        add_text(format_.tags.value_close, marker);
        const bool special =
            std::ranges::any_of(marker, [](const Json& element) { return element["type"] == "token"; });
        if (format_.tags.grammar.empty() || special) return parameters(tool);
        return schema_content(arguments_schema(tool), format_.tags.grammar);
      }
      case Arguments::kElements: {
        const Json schema = arguments_schema(tool);
        int num_left = 512;
        return nested_members(schema, schema, 0, num_left);
      }
      case Arguments::kJson:
        break;
    }
    return schema_content(arguments_schema(tool));
  }

  // Returns a Gemma object of values that are not nested. Its quotes are special tokens.
  Json quoted_object() const {
    const Json quote = token(format_.quote);
    const Json text = {{"type", "tag"}, {"begin", quote}, {"content", any_text()}, {"end", quote}};
    const Json plain = {{"type", "regex"}, {"pattern", "true|false|null|-?[0-9]+(\\.[0-9]+)?"}};
    const auto list_of = [](const Json& item) {
      const Json more = {{"type", "star"}, {"content", sequence({const_string(","), item})}};
      return Json{{"type", "optional"}, {"content", sequence({item, more})}};
    };
    const Json value = one_of({text, plain});
    const Json array = sequence({const_string("["), list_of(value), const_string("]")});
    const Json key = {{"type", "regex"}, {"pattern", "[a-zA-Z_][a-zA-Z0-9_]*:"}};
    return sequence(
        {const_string("{"), list_of(sequence({key, one_of({text, plain, array})})), const_string("}")});
  }

  Json call(const Tool& tool) const {
    Json elements = Json::array();
    add_text(std::string(written_.begin) + tool.name + std::string(written_.middle), elements);
    elements.push_back(content(tool));
    add_text(written_.end, elements);
    return sequence(std::move(elements));
  }

  Json any_call() const {
    Json all = Json::array();
    for (const Tool* tool : tools_) all.push_back(call(*tool));
    return one_of(std::move(all));
  }

  // Returns the elements of an answer that is calls, without the first `dropped` elements.
  Json calls(size_t dropped = 0) const {
    Json elements = Json::array();
    add_text(written_.before, elements);
    elements.erase(elements.begin(), elements.begin() + static_cast<std::ptrdiff_t>(dropped));
    elements.push_back(any_call());
    if (!one()) {
      Json next = Json::array();
      add_text(written_.between, next);
      next.push_back(any_call());
      elements.push_back({{"type", "star"}, {"content", sequence(std::move(next))}});
    }
    add_text(written_.after, elements);
    return elements;
  }

  static Json::const_iterator first_token(const Json& elements) {
    return std::find_if(elements.begin(), elements.end(),
                        [](const Json& element) { return has_type(element, "token"); });
  }

  // Returns free text in which a special token begins a call.
  Json text_with_tokens() const {
    Json rules = Json::array();
    Json begin = Json::array(), before = Json::array();
    add_text(written_.begin, begin);
    add_text(written_.before, before);
    const auto call_token = first_token(begin);
    if (call_token == begin.end()) {
      const auto trigger = first_token(before);
      const auto dropped = static_cast<size_t>(trigger - before.cbegin()) + 1;
      rules.push_back(Json::array({(*trigger)["token"], sequence(calls(dropped))}));
    } else {
      // The token may also be part of the markers around the calls.
      Json alternatives = Json::array();
      for (const std::string_view marker : {written_.before, written_.after}) {
        Json elements = Json::array();
        add_text(marker, elements);
        const auto found = first_token(elements);
        if (found == elements.end() || *found != *call_token) continue;
        Json rest = Json::array();
        for (auto at = found + 1; at != elements.end(); ++at) rest.push_back(*at);
        if (!rest.empty()) alternatives.push_back(sequence(std::move(rest)));
      }
      for (const Tool* tool : tools_) {
        Json elements = Json::array();
        add_text(std::string(written_.begin) + tool->name + std::string(written_.middle), elements);
        elements.erase(elements.begin(), elements.begin() + (call_token - begin.cbegin()) + 1);
        elements.push_back(content(*tool));
        add_text(written_.end, elements);
        alternatives.push_back(sequence(std::move(elements)));
      }
      rules.push_back(Json::array({(*call_token)["token"], one_of(std::move(alternatives))}));
    }
    return {{"type", "token_dispatch"}, {"rules", std::move(rules)}, {"loop", !one()}};
  }

  // Returns calls, or text that does not begin like one.
  Json start_or_text() const {
    std::string first = " \\n\\t\\[{";
    for (const std::string_view open : format_.opens)
      if (first.find(open.front()) == std::string::npos) first += open.front();
    const Json start = {{"type", "regex"}, {"pattern", "[^" + first + "]"}};
    return one_of({tokens_.empty() ? tags() : sequence(calls()), sequence({start, any_text()})});
  }

  Json call_tag(const Tool& tool, std::string_view before) const {
    return {{"type", "tag"},
            {"begin",
             std::string(before) + std::string(written_.begin) + tool.name + std::string(written_.middle)},
            {"content", content(tool)},
            {"end", std::string(written_.end)}};
  }

  // Returns free text in which a marker begins a call.
  Json text_with_tags() const {
    // The grammar begins with the text that precedes a name.
    const bool has_begin = !written_.begin.empty();
    Json all = Json::array();
    for (const Tool* tool : tools_) all.push_back(call_tag(*tool, has_begin ? "" : written_.before));
    return {{"type", "triggered_tags"},
            {"triggers", Json::array({std::string(has_begin ? written_.begin : written_.before)})},
            {"tags", std::move(all)},
            {"at_least_one", false},
            {"stop_after_first", one()}};
  }

  Json tags() const {
    Json all = Json::array();
    for (const Tool* tool : tools_) all.push_back(call_tag(*tool, ""));
    Json elements = Json::array();
    if (!written_.before.empty()) elements.push_back(const_string(written_.before));
    elements.push_back({{"type", "tags_with_separator"},
                        {"tags", std::move(all)},
                        {"separator", std::string(written_.between)},
                        {"at_least_one", true},
                        {"stop_after_first", one()}});
    if (!written_.after.empty()) elements.push_back(const_string(written_.after));
    return sequence(std::move(elements));
  }

  // Returns a message of gpt-oss after "<|start|>assistant": a call, with the recipient before or after the
  // channel. The token that ends it ends the answer.
  Json channel_call(const Tool& tool) const {
    const std::string to = " to=functions." + tool.name;
    Json json_mark = Json::array();
    add_text(" <|constrain|>json", json_mark);
    const Json mark = {{"type", "optional"},
                       {"content", one_of({sequence(json_mark), const_string(" json")})}};
    const auto header = [&](const std::string& text) {
      Json elements = Json::array();
      add_text(text, elements);
      return sequence(std::move(elements));
    };
    return sequence({one_of({header("<|channel|>commentary" + to), header(to + "<|channel|>commentary")}),
                     mark, token("<|message|>"), schema_content(arguments_schema(tool))});
  }

  Json any_channel_call() const {
    Json all = Json::array();
    for (const Tool* tool : tools_) all.push_back(channel_call(*tool));
    return one_of(std::move(all));
  }

  // Reasoning, then a call.
  Json channels() const {
    Json analysis = Json::array();
    add_any_text("<|channel|>analysis<|message|>", "<|end|>", analysis);
    add_text("<|start|>assistant", analysis);
    return sequence({{{"type", "optional"}, {"content", sequence(std::move(analysis))}}, any_channel_call()});
  }

  // Messages with any text, and calls.
  Json channels_with_text() const {
    const Json names = one_of({const_string("analysis"), const_string("commentary"), const_string("final")});
    const Json message =
        one_of({sequence({token("<|channel|>"), names, token("<|message|>")}), any_channel_call()});
    const Json next =
        Json::array({token("<|start|>")["token"], sequence({const_string("assistant"), message})});
    const Json rest = {
        {"type", "token_dispatch"},
        {"rules", Json::array({next})},
        {"loop", true},
        {"exclude_tokens", Json::array({token("<|channel|>")["token"], token("<|message|>")["token"]})}};
    return sequence({message, rest});
  }

  const ToolFormat& format_;
  const ToolFormat::Written& written_;
  const ToolChoice& choice_;
  const MarkerTokens& tokens_;
  std::vector<const Tool*> tools_;
};

// Special tokens of the messages of gpt-oss.
constexpr std::string_view kChannelMarks[] = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
                                              "<|end|>"};

Grammar structural_tag(const Json& format) {
  const Json tag = {{"type", "structural_tag"}, {"format", format}};
  return {GrammarKind::kStructuralTag, json_text(tag)};
}

}  // namespace

MarkerTokens marker_tokens(const ToolFormat& format, const Tokenizer& tokenizer) {
  const ToolFormat::Written& written = format.written;
  const ToolFormat::Tags& tags = format.tags;
  const bool channels = format.structure == ToolFormat::Structure::kChannels;
  std::vector<std::string_view> markers = {written.before,  written.begin,   written.middle, written.end,
                                           written.between, written.after,   tags.key_open,  tags.key_close,
                                           tags.value_open, tags.value_close};
  if (format.arguments == Arguments::kQuoted) markers.push_back(format.quote);
  if (channels) markers.assign(std::begin(kChannelMarks), std::end(kChannelMarks));
  MarkerTokens found;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string& text = tokenizer.token(id);
    if (!text.empty() && std::ranges::any_of(markers, [&](std::string_view marker) {
          return marker.find(text) != std::string_view::npos;
        }))
      found.emplace_back(text, id);
  }
  // Channels need all of their tokens.
  if (channels && found.size() < std::size(kChannelMarks)) found.clear();
  return found;
}

bool supports_free_text(const ToolFormat& format, const MarkerTokens& tokens) {
  return format.structure != ToolFormat::Structure::kChannels || !tokens.empty();
}

Grammar tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice,
                     const MarkerTokens& tokens) {
  return structural_tag(GrammarWriter(format, tools, choice, tokens).answer());
}

Grammar tool_or_json_grammar(const ToolFormat& format, const std::vector<Tool>& tools, bool parallel,
                             const Json& schema, const MarkerTokens& tokens) {
  const ToolChoice choice{.kind = ToolChoice::Kind::kRequired, .name = {}, .parallel = parallel};
  return structural_tag(
      one_of({schema_content(schema), GrammarWriter(format, tools, choice, tokens).answer()}));
}

}  // namespace attend::serve
