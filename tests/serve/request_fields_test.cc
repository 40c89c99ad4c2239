// Every field of every generation endpoint changes the request or is rejected by its name. The fields are
// those of the OpenAPI document and of the tables of other APIs' fields, so that a new one is tested too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/fields/foreign_fields.h"
#include "attend/serve/protocols/pooling/embedding_job.h"

namespace attend::serve {
namespace {

using testing::HasSubstr;

const Json& document() {
  static const Json parsed = [] {
    std::ifstream file(ATTEND_SOURCE_DIR "/src/attend/serve/web/openapi.json");
    return Json::parse(file);
  }();
  return parsed;
}

const Json& resolve(const Json& schema) {
  if (!schema.contains("$ref")) return schema;
  const std::string path = schema["$ref"];
  return document().at(Json::json_pointer(path.substr(1)));
}

// Adds the properties of an object schema, also those of its parts.
void add_properties(const Json& schema, std::map<std::string, Json>& properties) {
  const Json& resolved = resolve(schema);
  for (const Json& part : resolved.value("allOf", Json::array())) add_properties(part, properties);
  if (!resolved.contains("properties")) return;
  for (const auto& [key, value] : resolved["properties"].items()) properties[key] = value;
}

std::map<std::string, Json> properties_of(const std::string& name) {
  std::map<std::string, Json> properties;
  add_properties({{"$ref", "#/components/schemas/" + name}}, properties);
  return properties;
}

// Returns values that the schema accepts: bounds of numbers, both booleans, a string, an item, and so on.
std::vector<Json> valid_values(const Json& schema) {
  const Json& resolved = resolve(schema);
  std::vector<Json> values;
  for (const char* key : {"anyOf", "oneOf"})
    for (const Json& part : resolved.value(key, Json::array()))
      for (Json& value : valid_values(part)) values.push_back(std::move(value));
  if (resolved.contains("const")) values.push_back(resolved["const"]);
  for (const Json& value : resolved.value("enum", Json::array())) values.push_back(value);
  const std::string type = resolved.value("type", "");
  if (type == "boolean") values.insert(values.end(), {true, false});
  if (type == "integer" || type == "number") {
    values.emplace_back(type == "integer" ? Json(3) : Json(0.75));
    for (const char* bound : {"minimum", "maximum"})
      if (resolved.contains(bound)) values.push_back(resolved[bound]);
  }
  if (type == "string") values.emplace_back("some");
  if (type == "array")
    for (const Json& item : valid_values(resolved["items"])) values.push_back(Json::array({item}));
  if (type == "object") {
    Json object = Json::object();
    std::map<std::string, Json> properties;
    add_properties(resolved, properties);
    for (const auto& [key, property] : properties) {
      const std::vector<Json> inner = valid_values(property);
      if (inner.empty()) continue;
      object[key] = inner.front();
      if (resolved.value("required", Json::array()).empty()) values.push_back({{key, inner.front()}});
    }
    if (resolved.contains("additionalProperties")) object["5"] = 1;
    if (properties.empty()) values.push_back({{"type", "object"}});
    values.push_back(object);
  }
  // The schema of any value.
  if (values.empty() && !resolved.contains("type") && !resolved.contains("anyOf"))
    values.emplace_back("some");
  return values;
}

// Returns values of types that the schema does not accept, and numbers outside of its bounds.
std::vector<Json> invalid_values(const Json& schema) {
  std::vector<Json> parts = {schema};
  for (size_t i = 0; i < parts.size(); ++i)
    for (const Json& part : Json(resolve(parts[i])).value("anyOf", Json::array())) parts.push_back(part);
  const auto accepts = [&](std::initializer_list<const char*> types) {
    return std::any_of(parts.begin(), parts.end(), [&](const Json& part) {
      const Json& resolved = resolve(part);
      const bool is_any = !resolved.contains("type") && !resolved.contains("anyOf") &&
                          !resolved.contains("enum") && !resolved.contains("const") &&
                          !resolved.contains("allOf");
      return is_any || std::any_of(types.begin(), types.end(),
                                   [&](const char* type) { return resolved.value("type", "") == type; });
    });
  };
  std::vector<Json> values;
  if (!accepts({"integer", "number"})) values.emplace_back(5);
  if (!accepts({"string"}) && !accepts({"object"})) values.emplace_back("some");
  if (!accepts({"boolean"})) values.emplace_back(true);
  if (!accepts({"array"})) values.push_back(Json::array({Json::array()}));
  if (!accepts({"object"}) && !accepts({"string"})) values.push_back({{"some", 1}});
  for (const Json& part : parts) {
    const Json& resolved = resolve(part);
    const std::string type = resolved.value("type", "");
    if (type != "integer" && type != "number") continue;
    const bool only_number = parts.size() <= 3 && resolve(schema).dump().find("const") == std::string::npos;
    if (!only_number) continue;
    if (resolved.contains("minimum") && resolved["minimum"] > -1e15)
      values.push_back(resolved["minimum"].get<int64_t>() - 1);
    if (resolved.contains("exclusiveMinimum")) values.push_back(resolved["exclusiveMinimum"]);
    if (resolved.contains("maximum") && resolved["maximum"] < 1e15)
      values.push_back(resolved["maximum"].get<int64_t>() + 1);
  }
  return values;
}

// Prints all of a job.
std::string describe(const GenerationJob& job) {
  const SamplingParams& params = job.params;
  std::ostringstream out;
  out << job.model << '|' << job.adapter << '|' << job.rid << '|' << job.cache_salt << '|' << job.priority
      << '|' << job.is_batch << '|' << job.add_special_tokens << '|' << job.truncate_prompt.value_or(0) << '|'
      << job.variables << '|' << job.add_generation_prompt << '|' << job.continued << '|'
      << job.has_max_tokens << '|' << job.stream << '|' << job.include_usage << '|' << job.continuous_usage
      << '|' << job.echo << '|' << job.logprob_start.value_or(-1) << '|' << job.logprob_text << '|'
      << job.detokenize << '|';
  for (const PromptInput& prompt : job.prompts) out << testing::PrintToString(prompt);
  out << params.max_new_tokens << '|' << params.temperature << '|' << params.top_k << '|' << params.top_p
      << '|' << params.min_p << '|' << testing::PrintToString(params.seed) << '|' << params.repetition_penalty
      << '|' << params.frequency_penalty << '|' << params.presence_penalty << '|'
      << testing::PrintToString(params.logit_bias) << params.min_tokens << '|'
      << testing::PrintToString(params.stop_token_ids) << testing::PrintToString(params.stop)
      << params.include_stop << '|' << params.ignore_eos << '|' << params.skip_special_tokens << '|'
      << params.n << '|' << testing::PrintToString(params.logprobs)
      << testing::PrintToString(params.prompt_logprobs);
  if (job.grammar) out << to_string(job.grammar->grammar.kind) << job.grammar->grammar.text;
  if (job.answer) {
    out << job.answer->tools.size() << job.answer->parallel << (job.answer->reasoning != nullptr)
        << testing::PrintToString(job.answer->max_reasoning_tokens);
    if (job.answer->tool_format) out << job.answer->tool_format->name();
  }
  return out.str();
}

struct Api {
  const char* name;
  const Endpoint* endpoint;
  Json body;                    // a valid request
  std::vector<Json> additions;  // fields that others depend on
};

void PrintTo(const Api& api, std::ostream* out) { *out << api.name; }

const Json kTools = {{{"type", "function"}, {"function", {{"name", "some"}}}}};
const Json kTalk = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "He"}}};
const Api kApis[] = {
    {"ChatRequest",
     &kChatCompletions,
     {{"messages", kTalk}},
     {{{"stream", true}},
      {{"frequency_penalty", 1}},
      {{"logprobs", true}},
      {{"tools", kTools}},
      {{"tools", kTools}, {"tool_choice", "required"}}}},
    {"CompletionRequest",
     &kCompletions,
     {{"prompt", "a"}},
     {{{"stream", true}}, {{"frequency_penalty", 1}}, {{"logprobs", 1}}}},
    {"GenerateRequest",
     &kGenerate,
     {{"text", "a"}},
     {{{"return_logprob", true}}, {{"sampling_params", {{"frequency_penalty", 1}}}}}},
};

ChatFormats formats() {
  ChatFormats all;
  all.tools = &parse_tool_format("hermes");
  all.reasoning = &parse_reasoning_format("qwen3");
  all.grammars = true;
  return all;
}

GenerationJob read(const Api& api, const Json& body) { return api.endpoint->read(body, {}, formats()); }

// Bodies to which a field is added.
std::vector<Json> bodies_of(const Api& api, const std::string& key) {
  std::vector<Json> bodies = {api.body};
  for (const Json& addition : api.additions) {
    bodies.push_back(api.body);
    bodies.back().update(addition);
  }
  if (key == "input_ids") bodies.push_back(Json::object());
  return bodies;
}

// Returns whether the field changes the request, or is rejected because it contradicts others.
bool has_effect(const Api& api, const std::string& key, const Json& value) {
  for (const Json& body : bodies_of(api, key)) {
    Json with = body;
    if (with.contains(key) && value.is_object())
      with[key].update(value);
    else
      with[key] = value;
    try {
      const GenerationJob job = read(api, with);
      EXPECT_THAT(job.ignored, testing::Not(testing::Contains(key)));
      if (body.empty() || describe(job) != describe(read(api, body))) return true;
    } catch (const ApiError& error) {
      const std::string field = value.is_object() ? key + "." + value.begin().key() : key;
      if (error.param == key || error.param == field) return true;
    }
  }
  return false;
}

class EveryField : public testing::TestWithParam<Api> {};
INSTANTIATE_TEST_SUITE_P(Of, EveryField, testing::ValuesIn(kApis),
                         [](const auto& api) { return std::string(api.param.name); });

void expect_effect(const Api& api, const std::string& key, const Json& schema,
                   const std::function<Json(const Json&)>& wrap) {
  SCOPED_TRACE(key);
  const std::vector<Json> values = valid_values(schema);
  const std::string field = wrap(0).is_object() ? "sampling_params" : key;
  EXPECT_TRUE(std::any_of(values.begin(), values.end(), [&](const Json& value) {
    return has_effect(api, field, wrap(value));
  })) << "no value has an effect";
}

TEST_P(EveryField, OfTheDocumentChangesTheRequest) {
  const Api& api = GetParam();
  for (const auto& [key, schema] : properties_of(api.name)) {
    if (schema.value("description", "") == "No effect") {
      EXPECT_THAT(fields_without_effect(), testing::Contains(testing::StrEq(key)));
      continue;
    }
    if (key == "sampling_params") continue;
    expect_effect(api, key, schema, [](const Json& value) { return value; });
  }
  if (api.endpoint != &kGenerate) return;
  for (const auto& [key, schema] : properties_of("Sampling"))
    expect_effect(api, key, schema, [key = key](const Json& value) { return Json{{key, value}}; });
}

void expect_named(const Api& api, const std::string& param, const Json& body) {
  for (const Json& base : bodies_of(api, param)) {
    Json with = base;
    with.update(body);
    try {
      read(api, with);
      ADD_FAILURE() << with << " is accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      EXPECT_TRUE(error.param.starts_with(param)) << with << ": " << error.param << ": " << error.message;
    }
  }
}

TEST_P(EveryField, IsNamedByTheErrorOfAWrongValue) {
  const Api& api = GetParam();
  for (const auto& [key, schema] : properties_of(api.name))
    for (const Json& value : invalid_values(schema)) expect_named(api, key, {{key, value}});
  if (api.endpoint != &kGenerate) return;
  for (const auto& [key, schema] : properties_of("Sampling"))
    for (const Json& value : invalid_values(schema))
      expect_named(api, "sampling_params." + key, {{"sampling_params", {{key, value}}}});
}

// A field without a value of its own, or a value of any type that is not the default.
Json unsupported_value(const RefusedField& field) {
  const std::string_view neutral = field.neutral;
  return neutral == "true" ? Json(false) : Json(7);
}

TEST_P(EveryField, OfOtherApisIsSupportedOrRejected) {
  const Api& api = GetParam();
  const std::map<std::string, Json> own = properties_of(api.name);
  for (const RefusedField& field : unsupported_fields()) {
    SCOPED_TRACE(field.key);
    if (own.contains(field.key)) continue;
    Json body = api.body;
    body[field.key] = unsupported_value(field);
    expect_named(api, field.key, body);
    const std::string_view neutral = field.neutral;
    if (neutral == "null") continue;
    body[field.key] = neutral.empty() ? Json(false) : Json::parse(neutral);
    if (api.endpoint == &kGenerate && properties_of("Sampling").contains(field.key)) continue;
    EXPECT_THAT(read(api, body).ignored, testing::IsEmpty());
  }
}

TEST_P(EveryField, WithoutEffectLeavesTheRequestUnchanged) {
  const Api& api = GetParam();
  const std::map<std::string, Json> own = properties_of(api.name);
  for (const char* key : fields_without_effect()) {
    if (own.contains(key) && own.at(key).value("description", "") != "No effect") continue;
    Json body = api.body;
    body[key] = "some";
    const GenerationJob job = read(api, body);
    EXPECT_EQ(describe(job), describe(read(api, api.body))) << key;
    EXPECT_THAT(job.ignored, testing::IsEmpty()) << key;
  }
}

TEST(ForeignFields, AreListedOnce) {
  std::map<std::string, int> counts;
  for (const RefusedField& field : unsupported_fields()) ++counts[field.key];
  for (const char* key : fields_without_effect()) ++counts[key];
  for (const auto& [key, count] : counts) EXPECT_EQ(count, 1) << key;
}

TEST(GenerateJob, AcceptsSkipSpecialTokensOutsideOfSamplingParams) {
  const auto skips = [](const char* body) {
    return kGenerate.read(parse_body(body), {}, {}).params.skip_special_tokens;
  };
  EXPECT_FALSE(skips(R"({"text": "a", "skip_special_tokens": false})"));
  EXPECT_TRUE(skips(
      R"({"text": "a", "skip_special_tokens": false, "sampling_params": {"skip_special_tokens": true}})"));
}

TEST(GenerateJob, NamesTheObjectOfAMisplacedField) {
  try {
    kGenerate.read(parse_body(R"({"text": "a", "temperature": 0})"), {}, {});
    ADD_FAILURE() << "accepted";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.param, "temperature");
    EXPECT_THAT(error.message, HasSubstr("expected in sampling_params"));
  }
}

TEST(MaxTokens, MayBeZeroOrUnlimited) {
  const auto read = [](const std::string& fields) {
    return kCompletions.read(parse_body(R"({"prompt": "a", )" + fields + "}"), {}, {});
  };
  EXPECT_EQ(read(R"("max_tokens": 0)").params.max_new_tokens, 0);
  EXPECT_EQ(read(R"("n_predict": 5)").params.max_new_tokens, 5);
  const GenerationJob unlimited = read(R"("max_tokens": -1)");
  EXPECT_EQ(unlimited.params.max_new_tokens, INT32_MAX);
  EXPECT_FALSE(unlimited.has_max_tokens);
}

TEST(EmbeddingFields, AreReadOrRejected) {
  const auto read = [](const Json& more) {
    Json body = {{"input", "a"}};
    body.update(more);
    return read_embedding(body, 8);
  };
  EXPECT_EQ(read({{"truncate_prompt_tokens", -1}}).truncate, -1);
  EXPECT_FALSE(read({{"add_special_tokens", false}}).add_special_tokens);
  for (const RefusedField& field : unsupported_fields()) {
    const std::string key = field.key;
    if (key == "encoding_format" || key == "dimensions" || key == "add_special_tokens") continue;
    try {
      read({{key, unsupported_value(field)}});
      ADD_FAILURE() << key << " is accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.param, key);
    }
  }
  EXPECT_THAT(read({{"user", "u"}, {"priority", 1}, {"unheard_of", 1}}).ignored,
              testing::ElementsAre("unheard_of"));
}

}  // namespace
}  // namespace attend::serve
