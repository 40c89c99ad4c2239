// Random texts that the grammar of a format allows are calls that its parser reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <set>

#include "attend/serve/formats/tool_format.h"
#include "tests/grammar/grammar_folder.h"

namespace attend::serve::tool_grammars_test {
namespace {

class ToolGrammarsTest : public attend::testing::WithGrammars {};

constexpr int32_t kEnd = 0;  // <|begin|> of the bundled model, since <|end|> ends a message of gpt-oss
constexpr int kMaxTokens = 1200;

// Vocabulary of the bundled model with special tokens.
struct Vocabulary {
  explicit Vocabulary(const std::vector<std::string>& special_tokens) {
    std::ifstream file(ATTEND_SOURCE_DIR "/models/attend-tiny/tokenizer.json");
    Json json = Json::parse(file);
    for (int32_t id = static_cast<int32_t>(json["model"]["vocab"].size());
         const std::string& token : special_tokens)
      json["added_tokens"].push_back({{"id", id++},
                                      {"content", token},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "tool_grammars.json";
    std::ofstream(path) << json.dump();
    tokenizer.emplace(Tokenizer::from_path(path));
    compiler = std::make_unique<GrammarCompiler>(
        GrammarLibrary::load(), GrammarVocabulary{*tokenizer, attend::testing::kVocabulary, {kEnd}});
  }

  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<GrammarCompiler> compiler;
};

// Markers of a format that are special tokens of its models.
std::vector<std::string> special_markers(const ToolFormat& format) {
  const ToolFormat::Written& written = format.written;
  std::string all;
  for (const std::string_view text :
       {written.before, written.begin, written.middle, written.end, written.after})
    all += text;
  for (const std::string_view text :
       {format.tags.key_open, format.tags.key_close, format.tags.value_open, format.tags.value_close})
    if (format.tags.grammar.empty()) all += text;
  if (format.arguments == ToolFormat::Arguments::kQuoted) all += format.quote;
  if (format.structure == ToolFormat::Structure::kChannels)
    all += "<|start|><|channel|><|message|><|constrain|>";
  std::set<std::string> markers;
  const std::regex marker(R"(<[^<>\s"]+>|<\|"\|>|\[[A-Z_]+\]|｜DSML｜|｜GCML｜|\]<\]minimax\[>\[)");
  for (std::sregex_iterator at(all.begin(), all.end(), marker), end; at != end; ++at)
    if (at->str() != "<|end|>") markers.insert(at->str());
  return {markers.begin(), markers.end()};
}

std::vector<int32_t> allowed_ids(TokenMask& mask) {
  std::vector<uint32_t> words(attend::testing::kVocabulary / 32);
  std::vector<int32_t> allowed;
  if (!mask.fill(words)) return allowed;
  for (int32_t id = 0; id < attend::testing::kVocabulary; ++id)
    if (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
  return allowed;
}

// Samples allowed tokens at random up to the end of the grammar. Returns no value for a text that is too
// long.
std::optional<std::vector<int32_t>> sample(TokenMask& mask, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  while (static_cast<int>(ids.size()) < kMaxTokens) {
    const std::vector<int32_t> allowed = allowed_ids(mask);
    if (allowed.empty()) return std::nullopt;
    const bool ends = std::ranges::find(allowed, kEnd) != allowed.end();
    const int32_t id = ends ? kEnd : allowed[random() % allowed.size()];
    if (id == kEnd) return ids;
    mask.accept(id);
    ids.push_back(id);
  }
  return std::nullopt;
}

// Like sample(), but for a model that writes a space wherever it may.
std::optional<std::vector<int32_t>> sample_spaces(const Tokenizer& tokenizer, TokenMask& mask) {
  std::vector<int32_t> ids;
  while (static_cast<int>(ids.size()) < kMaxTokens) {
    const std::vector<int32_t> allowed = allowed_ids(mask);
    if (allowed.empty()) return std::nullopt;
    if (std::ranges::find(allowed, kEnd) != allowed.end()) return ids;
    const auto space = std::ranges::find_if(allowed, [&](int32_t id) {
      return tokenizer.decode({&id, 1}, /*skip_special_tokens=*/false) == " ";
    });
    ids.push_back(space != allowed.end() ? *space : allowed.front());
    mask.accept(ids.back());
  }
  return std::nullopt;
}

const std::vector<Tool>& weather_tool() {
  static const std::vector<Tool> tools = {{"get_weather", Json::parse(R"({"type": "object", "properties": {
    "city": {"type": "string", "enum": ["Oslo", "Rome"]}, "deep": {"type": "boolean"}}, "required": ["city", "deep"],
    "additionalProperties": false})")}};
  return tools;
}

void check_call(const ToolFormat& format, const std::string& text) {
  AnswerParts parts;
  const auto parser = make_call_parser(format, weather_tool());
  parser->push(text, parts);
  parser->finish(parts, /*complete=*/true);
  std::vector<AnswerPart> calls = parts.all();
  std::erase_if(calls, [](const AnswerPart& part) { return part.kind == AnswerPart::Kind::kReasoning; });
  ASSERT_EQ(calls.size(), 2u) << text;
  EXPECT_EQ(calls[0].text, "get_weather");
  const Json arguments = Json::parse(calls[1].text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(arguments.is_object()) << text << ": " << calls[1].text;
  if (format.arguments == ToolFormat::Arguments::kKeyword ||
      format.arguments == ToolFormat::Arguments::kQuoted)
    return;
  EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome") << text;
  EXPECT_TRUE(arguments["deep"].is_boolean()) << text;
}

// Samples calls that the grammar allows, and returns how many ended.
int check_samples(const ToolFormat& format, Vocabulary& vocabulary, const MarkerTokens& tokens) {
  constexpr uint32_t kSamples = 4;
  const ToolChoice choice{.kind = ToolChoice::Kind::kNamed, .name = "get_weather", .parallel = true};
  const std::shared_ptr<TokenMask> mask =
      vocabulary.compiler->compile(tool_grammar(format, weather_tool(), choice, tokens));
  int num_read = 0;
  for (uint32_t seed = 0; seed < kSamples; ++seed) {
    const auto ids = sample(*mask->fork(), seed);
    if (!ids) continue;
    ++num_read;
    check_call(format, vocabulary.tokenizer->decode(*ids, /*skip_special_tokens=*/false));
    // A call has the special tokens of its first marker.
    for (const auto& [text, id] : tokens)
      if (format.written.begin.find(text) != std::string_view::npos &&
          format.structure != ToolFormat::Structure::kChannels) {
        EXPECT_NE(std::ranges::find(*ids, id), ids->end()) << text;
      }
  }
  return num_read;
}

TEST_F(ToolGrammarsTest, AllowTextsThatTheParsersRead) {
  Vocabulary vocabulary({});
  for (const ToolFormat& format : tool_formats()) {
    SCOPED_TRACE(format.name());
    const int num_read = check_samples(format, vocabulary, {});
    // Only restricted arguments are short.
    if (format.arguments == ToolFormat::Arguments::kJson) {
      EXPECT_GT(num_read, 0);
    }
  }
}

TEST_F(ToolGrammarsTest, LimitTheSpacesOfRequiredCalls) {
  Vocabulary vocabulary({});
  for (const ToolFormat& format : tool_formats()) {
    if (format.tags.grammar.empty()) continue;
    SCOPED_TRACE(format.name());
    const ToolChoice choice{.kind = ToolChoice::Kind::kNamed, .name = "get_weather", .parallel = false};
    const std::shared_ptr<TokenMask> mask =
        vocabulary.compiler->compile(tool_grammar(format, weather_tool(), choice));
    const auto ids = sample_spaces(*vocabulary.tokenizer, *mask);
    ASSERT_TRUE(ids.has_value());
    check_call(format, vocabulary.tokenizer->decode(*ids, /*skip_special_tokens=*/false));
  }
}

TEST_F(ToolGrammarsTest, WriteMarkersAsSpecialTokens) {
  for (const ToolFormat& format : tool_formats()) {
    if (!format.special) continue;
    SCOPED_TRACE(format.name());
    Vocabulary vocabulary(special_markers(format));
    const MarkerTokens tokens = marker_tokens(format, *vocabulary.tokenizer);
    const int num_read = check_samples(format, vocabulary, tokens);
    // Reasoning of gpt-oss is long.
    if (format.arguments == ToolFormat::Arguments::kJson &&
        format.structure != ToolFormat::Structure::kChannels) {
      EXPECT_GT(num_read, 0);
    }
  }
}

// Schemas that models rarely get: they are compiled, or rejected with an error of their own.
TEST_F(ToolGrammarsTest, AreWrittenForUnusualSchemas) {
  constexpr const char* kSchemas[] = {
      R"({"properties": {"a": true, "b": {}, "c": false}})",
      R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}})",
      R"({"properties": {"a": {"$ref": "#"}, "b": {"$ref": 5}, "c": {"$ref": "#/$defs/none"}}})",
      R"({"properties": {"a": {"type": "array"}, "b": {"type": "array", "items": true}, "c": {"type": "object"}}})",
      R"({"properties": {"a": {"type": "string", "enum": []}, "b": {"enum": [1, null, "x"]}, "c": {"const": 1}}})",
      R"({"properties": {"a": {"type": ["string", "null"]}, "b": {"type": 5}, "c": {"anyOf": [{"type": "string"}]}}})",
      R"({"properties": {"": {"type": "string"}, "a\"b": {"type": "string"}, "é>": {"type": "integer"}}})",
      R"({"properties": {"a": {"type": "object", "properties": [1], "required": 5}}, "required": ["none"]})",
      R"({"type": "object", "additionalProperties": {"type": "integer"}})",
      R"({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}, "d": {"$ref": "#"},
          "e": {"$ref": "#"}, "f": {"$ref": "#"}, "g": {"$ref": "#"}, "h": {"$ref": "#"}, "i": {"$ref": "#"}}})",
      R"({"required": null, "properties": null})"};
  Vocabulary vocabulary({});
  for (const ToolFormat& format : tool_formats()) {
    for (const char* schema : kSchemas) {
      SCOPED_TRACE(std::string(format.name()) + ": " + schema);
      const std::vector<Tool> tools = {{"f", Json::parse(schema)}};
      for (const ToolChoice::Kind kind : {ToolChoice::Kind::kRequired, ToolChoice::Kind::kAuto}) {
        Grammar grammar;
        ASSERT_NO_THROW(grammar = tool_grammar(format, tools, {.kind = kind, .name = {}, .parallel = true}));
        ASSERT_TRUE(Json::accept(grammar.text));
      }
    }
  }
}

// In a text, a call must be one of the tools, and its arguments follow the schema.
TEST_F(ToolGrammarsTest, RestrictCallsWithinTexts) {
  const ToolChoice choice{.kind = ToolChoice::Kind::kAuto, .name = {}, .parallel = true};
  const auto check = [&](std::string_view name, const std::vector<std::string>& special,
                         const std::string& good, const std::string& bad) {
    SCOPED_TRACE(name);
    const ToolFormat& format = parse_tool_format(name);
    Vocabulary vocabulary(special);
    const MarkerTokens tokens = marker_tokens(format, *vocabulary.tokenizer);
    ASSERT_TRUE(supports_free_text(format, tokens));
    const std::shared_ptr<TokenMask> mask =
        vocabulary.compiler->compile(tool_grammar(format, weather_tool(), choice, tokens));
    const auto accepts = [&](const std::string& text) {
      const std::shared_ptr<TokenMask> fork = mask->fork();
      for (const int32_t id : vocabulary.tokenizer->encode(text, false)) {
        const std::vector<int32_t> allowed = allowed_ids(*fork);
        if (std::ranges::find(allowed, id) == allowed.end()) return false;
        fork->accept(id);
      }
      return true;
    };
    EXPECT_TRUE(accepts(good));
    EXPECT_FALSE(accepts(bad));
  };
  const std::string arguments = R"({"city": "Oslo", "deep": true})",
                    other = R"({"city": "Bern", "deep": true})";
  check("qwen25", {},
        "Hm. <tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + arguments + "}\n</tool_call> a",
        "Hm. <tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + other + "}\n</tool_call>");
  check("mistral", {"[TOOL_CALLS]", "[ARGS]"}, "Hm. [TOOL_CALLS]get_weather[ARGS]" + arguments,
        "Hm. [TOOL_CALLS]get_weather[ARGS]" + other);
  const std::string kimi =
      "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>";
  check("kimi_k2",
        {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
         "<|tool_call_end|>", "<|tool_calls_section_end|>"},
        kimi + arguments + "<|tool_call_end|><|tool_calls_section_end|>", kimi + other + "<|tool_call_end|>");
  check("llama3", {}, R"({"name": "get_weather", "parameters": )" + arguments + "}",
        R"({"name": "get_weather", "parameters": )" + other + "}");
  check("llama3", {}, "No call.", "{\"a\"");
  check("xlam", {}, "No call.", R"([{"name": "get_weather", "arguments": )" + other);
  check("pythonic", {}, "[get_weather(city='Oslo')]", "[now()]");
  const std::vector<std::string> channels = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
                                             "<|call|>"};
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  check("gpt-oss", channels,
        thought + "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + arguments,
        thought + "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + other);
  check("gpt-oss", channels,
        thought + " to=functions.get_weather<|channel|>commentary json<|message|>" + arguments,
        thought + " to=functions.now<|channel|>commentary json<|message|>");
  check("gpt-oss", channels, thought + "<|channel|>final<|message|>Done.", thought + "Done.");
}

}  // namespace
}  // namespace attend::serve::tool_grammars_test
