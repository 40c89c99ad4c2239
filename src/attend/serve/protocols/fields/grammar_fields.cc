#include "attend/serve/protocols/fields/grammar_fields.h"

namespace attend::serve {
namespace {

// Returns the text, or the JSON as text: clients of vLLM and SGLang send schemas in both forms.
std::string text_or_json(const Json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

class Reader {
 public:
  const std::optional<RequestedGrammar>& found() const { return found_; }

  // Empty texts and lists mean "no grammar": clients send them for fields that they do not use.
  void json(const Fields& fields, const char* key) {
    if (const Json* value = object_or_text(fields, key, "a JSON schema"))
      add({GrammarKind::kJsonSchema, text_or_json(*value)}, fields.name(key));
  }
  void text(const Fields& fields, const char* key, GrammarKind kind) {
    if (const auto value = fields.string(key); value && !value->empty())
      add({kind, *value}, fields.name(key));
  }
  void choice(const Fields& fields, const char* key) {
    const Json* value = fields.find(key);
    if (value && !value->is_array())
      reject(fields.name(key), fields.name(key), " ", excerpt(*value), ": expected a list of strings");
    if (value && !value->empty()) add(choice_grammar(fields.strings(key)), fields.name(key));
  }
  void object(const Fields& fields, const char* key) {
    if (fields.boolean(key).value_or(false)) add(json_object_grammar(), fields.name(key));
  }
  void structural_tag(const Fields& fields, const char* key) {
    if (const Json* value = object_or_text(fields, key, "a structural tag"))
      add({GrammarKind::kStructuralTag, text_or_json(*value)}, fields.name(key));
  }
  void response_format(const Fields& fields) {
    const Json* format = fields.find("response_format");
    if (!format) return;
    const std::string name = fields.name("response_format");
    const Fields inner(*format, name + ".");
    const std::string type = inner.string("type").value_or("");
    if (type == "text") return;
    if (type == "json_object") return add(json_object_grammar(), name);
    if (type == "structural_tag")
      return add({GrammarKind::kStructuralTag, json_text(convert_structures(*format, name))}, name);
    if (type != "json_schema")
      reject_unsupported(name, "type ", excerpt(type),
                         " is not supported; expected \"text\", \"json_object\", \"json_schema\" or "
                         "\"structural_tag\"");
    const Json* about = inner.find("json_schema");
    if (!about) reject(inner.name("json_schema"), inner.name("json_schema"), ": missing");
    const Fields named(*about, inner.name("json_schema") + ".");
    const Json* schema = named.find("schema");
    if (!schema) schema = named.find("schema_");  // name that SGLang's client uses
    if (!schema || !schema->is_object())
      reject(named.name("schema"), named.name("schema"), ": expected a JSON schema, an object");
    add({GrammarKind::kJsonSchema, json_text(*schema)}, name);
  }

 private:
  static const Json* object_or_text(const Fields& fields, const char* key, std::string_view expected) {
    const Json* value = fields.find(key);
    if (value && !value->is_object() && !value->is_string())
      reject(fields.name(key), fields.name(key), " ", excerpt(*value), ": expected ", expected);
    return value && *value != "" ? value : nullptr;
  }

  void add(Grammar grammar, const std::string& param) {
    if (found_) reject(param, param, ": ", found_->param, " already sets the format of the text");
    found_ = {std::move(grammar), param};
  }

  // Converts SGLang's older form, {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, to a
  // format.
  static Json convert_structures(const Json& format, const std::string& name) {
    if (!format.contains("structures")) return format;
    Json tags = Json::array();
    const Json& structures = format["structures"];
    if (!structures.is_array()) reject(name + ".structures", name, ".structures: expected a list");
    for (const Json& structure : structures) {
      const Fields fields(structure, name + ".structures.");
      const Json* schema = fields.find("schema");
      tags.push_back({{"type", "tag"},
                      {"begin", fields.string("begin").value_or("")},
                      {"content", {{"type", "json_schema"}, {"json_schema", schema ? *schema : Json(true)}}},
                      {"end", fields.string("end").value_or("")}});
    }
    return {{"type", "structural_tag"},
            {"format",
             {{"type", "triggered_tags"},
              {"triggers", format.value("triggers", Json::array())},
              {"tags", tags}}}};
  }

  std::optional<RequestedGrammar> found_;
};

}  // namespace

std::optional<RequestedGrammar> read_grammar(const Fields& fields) {
  Reader reader;
  reader.response_format(fields);
  for (const char* key : {"json_schema", "guided_json"}) reader.json(fields, key);
  for (const char* key : {"regex", "guided_regex"}) reader.text(fields, key, GrammarKind::kRegex);
  for (const char* key : {"ebnf", "guided_grammar", "grammar"}) reader.text(fields, key, GrammarKind::kEbnf);
  reader.choice(fields, "guided_choice");
  reader.object(fields, "guided_json_object");
  reader.structural_tag(fields, "structural_tag");
  if (const Json* structured = fields.find("structured_outputs")) {
    const Fields inner(*structured, fields.name("structured_outputs") + ".");
    reader.json(inner, "json");
    reader.text(inner, "regex", GrammarKind::kRegex);
    reader.text(inner, "grammar", GrammarKind::kEbnf);
    reader.choice(inner, "choice");
    reader.object(inner, "json_object");
    reader.structural_tag(inner, "structural_tag");
  }
  return reader.found();
}

}  // namespace attend::serve
