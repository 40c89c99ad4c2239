// Every record of a tool-call format: its parser reads what its grammar writes, whole, cut off and in any
// pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <span>

#include "attend/base/error.h"
#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/tag_arguments.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/serve/protocols/chat_answer.h"

namespace attend::serve::tool_formats_test {
namespace {

using ::testing::HasSubstr;
using Kind = AnswerPart::Kind;

const std::vector<Tool>& test_tools() {
  static const std::vector<Tool> all = {
      {"get_weather", Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"},
         "days": {"type": "integer"}, "deep": {"type": "boolean"}}})")},
      {"now", Json::object()}};
  return all;
}

// An answer as clients see it.
struct Answer {
  std::string text, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Answer&) const = default;
};

void add(const AnswerParts& parts, Answer& answer) {
  for (const AnswerPart& part : parts.all()) {
    if (part.kind == Kind::kText) answer.text += part.text;
    if (part.kind == Kind::kReasoning) answer.reasoning += part.text;
    if (part.kind == Kind::kCall) answer.calls.emplace_back(part.text, "");
    if (part.kind == Kind::kArguments) answer.calls.at(answer.calls.size() - 1).second += part.text;
  }
}

Answer read(AnswerParser& parser, const std::vector<std::string>& pieces, bool complete) {
  Answer answer;
  AnswerParts parts;
  for (const std::string& piece : pieces) {
    parts.clear();
    parser.push(piece, parts);
    add(parts, answer);
  }
  parts.clear();
  parser.finish(parts, complete);
  add(parts, answer);
  return answer;
}

Answer read(const ToolFormat& format, const std::vector<std::string>& pieces, bool complete = true) {
  return read(*make_call_parser(format, test_tools()), pieces, complete);
}
Answer read(const std::string& format, const std::string& text) {
  return read(parse_tool_format(format), {text});
}

std::vector<std::string> bytes_of(const std::string& text) {
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  return bytes;
}

std::string parameter(const ToolFormat::Tags& tags, std::string_view key, std::string_view value) {
  const std::string_view quote = tags.key_open.ends_with('"') ? "\"" : "";
  const std::string_view line = tags.lines ? "\n" : "";
  std::string text;
  for (const std::string_view part : {tags.key_open, key, quote, tags.key_close, tags.value_open, line, value,
                                      line, tags.value_close, std::string_view("\n")})
    text += part;
  return text;
}

// Arguments of get_weather in the format's notation.
std::string written_arguments(const ToolFormat& format) {
  switch (format.arguments) {
    case ToolFormat::Arguments::kJson:
      return R"({"city": "Köln \"2\"", "days": 3, "deep": true})";
    case ToolFormat::Arguments::kTags:
      return parameter(format.tags, "city", "Köln \"2\"") + parameter(format.tags, "days", "3") +
             parameter(format.tags, "deep", "True");
    case ToolFormat::Arguments::kElements: {
      std::string all;
      const std::pair<std::string_view, std::string_view> parameters[] = {
          {"city", "Köln \"2\""}, {"days", "3"}, {"deep", "true"}};
      for (const auto& [key, value] : parameters)
        for (const std::string_view part : {format.tags.key_open, key, format.tags.key_close, value,
                                            format.tags.value_close, key, format.tags.key_close})
          all += part;
      return all;
    }
    case ToolFormat::Arguments::kKeyword:
      return R"(city='Köln "2"', days=3, deep=True)";
    case ToolFormat::Arguments::kQuoted:
      return "{city:" + std::string(format.quote) + "Köln \"2\"" + std::string(format.quote) +
             ",days:3,deep:true}";
  }
  return {};
}

std::string written_call(const ToolFormat& format, std::string_view tool, const std::string& arguments) {
  const ToolFormat::Written& written = format.written;
  return std::string(written.begin) + std::string(tool) + std::string(written.middle) + arguments +
         std::string(written.end);
}

std::string two_calls(const ToolFormat& format) {
  const bool braces =
      format.arguments == ToolFormat::Arguments::kJson || format.arguments == ToolFormat::Arguments::kQuoted;
  const ToolFormat::Written& written = format.written;
  return std::string(written.before) + written_call(format, "get_weather", written_arguments(format)) +
         std::string(written.between) + written_call(format, "now", braces ? "{}" : "") +
         std::string(written.after);
}

std::vector<std::string> test_texts(const ToolFormat& format) {
  std::vector<std::string> texts = {two_calls(format), "", " Only text < [ ", "é"};
  if (!format.at_start && format.structure != ToolFormat::Structure::kChannels)
    texts.push_back("Let me look.\n\n" + two_calls(format));
  std::string unknown = two_calls(format);
  unknown.replace(unknown.find("get_weather"), 11, "send_a_mail");
  texts.push_back(unknown);
  return texts;
}

TEST(ToolFormats, ReadWhatTheirGrammarsWrite) {
  for (const ToolFormat& format : tool_formats()) {
    SCOPED_TRACE(format.name());
    const Answer answer = read(format, {two_calls(format)});
    EXPECT_EQ(answer.text, "");
    ASSERT_EQ(answer.calls.size(), 2u) << two_calls(format);
    EXPECT_EQ(answer.calls[0].first, "get_weather");
    EXPECT_EQ(Json::parse(answer.calls[0].second, nullptr, false),
              Json::parse(R"({"city": "Köln \"2\"", "days": 3, "deep": true})"))
        << answer.calls[0].second;
    EXPECT_EQ(answer.calls[1], std::pair(std::string("now"), std::string("{}")));
  }
}

TEST(ToolFormats, ReturnOneCallIfCallsAreNotParallel) {
  for (const ToolFormat& format : tool_formats()) {
    SCOPED_TRACE(format.name());
    AnswerFormat single{.tools = test_tools(), .tool_format = &format};
    single.parallel = false;
    ChatAnswer answer(single);
    std::string names, arguments;
    const auto add_deltas = [&](const std::vector<AnswerDelta>& deltas) {
      for (const AnswerDelta& delta : deltas) {
        EXPECT_EQ(delta.call, 0u);
        if (delta.part.kind == Kind::kCall) names += delta.part.text + ";";
        if (delta.part.kind == Kind::kArguments) arguments += delta.part.text;
      }
    };
    for (const std::string& byte : bytes_of(two_calls(format)))
      add_deltas(answer.push(byte, ChatAnswer::End::kNone));
    add_deltas(answer.push("", ChatAnswer::End::kComplete));
    EXPECT_EQ(names, "get_weather;");
    EXPECT_EQ(Json::parse(arguments, nullptr, false),
              Json::parse(R"({"city": "Köln \"2\"", "days": 3, "deep": true})"));
  }
}

TEST(ToolFormats, AcceptTextBeforeCalls) {
  for (const ToolFormat& format : tool_formats()) {
    if (format.at_start || format.structure == ToolFormat::Structure::kChannels) continue;
    SCOPED_TRACE(format.name());
    const Answer answer = read(format, {"Let me look.\n\n" + two_calls(format)});
    EXPECT_EQ(answer.text, "Let me look.");
    EXPECT_EQ(answer.calls.size(), 2u);
  }
}

TEST(ToolFormats, DoNotDependOnWhereTheTextIsSplit) {
  for (const ToolFormat& format : tool_formats())
    for (const std::string& text : test_texts(format))
      for (const bool complete : {true, false}) {
        SCOPED_TRACE(std::string(format.name()) + ": " + text);
        const Answer whole = read(format, {text}, complete);
        ASSERT_EQ(read(format, bytes_of(text), complete), whole);
        for (size_t at = 1; at < text.size(); ++at)
          ASSERT_EQ(read(format, {text.substr(0, at), text.substr(at)}, complete), whole) << at;
      }
}

TEST(ToolFormats, OmitACallThatIsCutOffBeforeItsName) {
  for (const ToolFormat& format : tool_formats()) {
    if (format.at_start || format.structure == ToolFormat::Structure::kChannels) continue;
    const std::string call = "Look.\n" + two_calls(format);
    size_t opener = std::string::npos, size = 0;
    for (const std::string_view marker : format.opens)
      if (const size_t at = call.find(marker); at < opener) opener = at, size = marker.size();
    const bool is_word = call.substr(opener, size).find_first_of("<[") == std::string::npos;
    for (size_t end = opener + size; end < call.find("get_weather") + 5; ++end)
      EXPECT_EQ(read(format, {call.substr(0, end)}, /*complete=*/false).text,
                is_word ? call.substr(0, end) : "Look.")
          << format.name() << ": " << call.substr(0, end);
  }
}

// An answer that a model ends too early has complete arguments after every byte.
TEST(ToolFormats, CompleteTheArgumentsOfAnEndedAnswer) {
  for (const ToolFormat& format : tool_formats()) {
    const std::string text = two_calls(format);
    for (size_t size = 0; size < text.size(); ++size) {
      if ((static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) continue;  // within a character
      for (const auto& [name, arguments] : read(format, {text.substr(0, size)}).calls)
        ASSERT_TRUE(Json::accept(arguments))
            << format.name() << ": " << text.substr(0, size) << ": " << arguments;
    }
  }
}

// Random texts of the markers that a format searches for, in random pieces.
TEST(ToolFormats, DoNotDependOnRandomSplits) {
  std::mt19937 random(11);
  for (const ToolFormat& format : tool_formats()) {
    std::vector<std::string> atoms = {"\n",
                                      " ",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      "\"",
                                      "'",
                                      ",",
                                      ":",
                                      "now",
                                      "get_weather",
                                      "=",
                                      "(",
                                      ")",
                                      "\\",
                                      "city",
                                      "1",
                                      "None",
                                      "<",
                                      "é",
                                      "/>",
                                      "<|message|>",
                                      "to=functions.now",
                                      "{\"name\": \"now\"",
                                      "\"arguments\": {"};
    const ToolFormat::Written& written = format.written;
    for (const std::string_view marker :
         {written.before, written.begin, written.middle, written.end, written.after, format.close,
          format.name_open, format.call_close, format.tags.key_open, format.tags.key_close,
          format.tags.value_open, format.tags.value_close, format.tags.type_open, format.tags.type_close,
          format.tags.raw_open, format.tags.raw_close, format.quote})
      if (!marker.empty()) atoms.insert(atoms.end(), 3, std::string(marker));
    for (const std::string_view marker : format.opens) atoms.emplace_back(marker);
    for (int i = 0; i < 1500; ++i) {
      std::string text;
      for (size_t atom = random() % 16; atom > 0; --atom) text += atoms[random() % atoms.size()];
      std::vector<std::string> pieces;
      for (size_t at = 0, size = 0; at < text.size(); at += size)
        pieces.push_back(text.substr(at, size = 1 + random() % 7));
      const bool complete = random() % 2;
      const Answer whole = read(format, {text}, complete);
      ASSERT_EQ(read(format, pieces, complete), whole) << format.name() << ": " << text;
      if (!complete) continue;
      for (const auto& [name, arguments] : whole.calls)
        ASSERT_TRUE(Json::accept(arguments)) << format.name() << ": " << text << ": " << arguments;
    }
  }
}

TEST(ToolFormats, AcceptCallsWithoutSomeMarkers) {
  const std::pair<std::string, std::string> now = {"now", "{}"};
  EXPECT_EQ(read("qwen3_coder", "<function=now>\n</function>\n</tool_call>").calls, std::vector{now});
  EXPECT_EQ(read("qwen3_coder", "<tool_call><function=get_weather><parameter=city>\nA\n<parameter=days>2")
                .calls[0]
                .second,
            R"({"city": "A", "days": 2})");
  EXPECT_EQ(read("kimi_k2", "<|tool_call_begin|>now:3<|tool_call_argument_begin|>{}").calls,
            std::vector{now});
  EXPECT_EQ(read("mistral", "[TOOL_CALLS]now[CALL_ID]abc[ARGS]{}[TOOL_CALLS]now{}").calls,
            (std::vector{now, now}));
  EXPECT_EQ(read("glm45", "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>")
                .calls[0]
                .second,
            R"({"days": 2})");
  EXPECT_EQ(read("hermes",
                 "<tool_call>[{\"name\": \"now\"}, {'name': 'now', 'arguments': {'a': None,}}]</tool_call>")
                .calls,
            (std::vector<std::pair<std::string, std::string>>{now, {"now", "{\"a\": null}"}}));
}

// APIs return arguments as an object.
TEST(ToolFormats, ReturnCallsWithOtherArgumentsThanAnObjectAsText) {
  for (const std::string arguments : {"5", "[1, 2]", "\"x\"", "true", "\"[1]\""}) {
    const std::string text =
        "<tool_call>\n{\"name\": \"now\", \"arguments\": " + arguments + "}\n</tool_call>";
    for (const bool complete : {true, false}) {
      const Answer whole = read(parse_tool_format("qwen25"), {text}, complete);
      EXPECT_EQ(whole, (Answer{.text = text, .reasoning = "", .calls = {}})) << arguments;
      EXPECT_EQ(read(parse_tool_format("qwen25"), bytes_of(text), complete), whole) << arguments;
    }
    const std::string message = "<|channel|>commentary to=functions.now<|message|>" + arguments + "<|call|>";
    EXPECT_EQ(read("gpt-oss", message), (Answer{.text = arguments, .reasoning = "", .calls = {}}));
  }
  const std::vector<std::pair<std::string, std::string>> now = {{"now", "{}"}};
  for (const std::string arguments : {"null", "{}", "\"{}\"", "\"\""})
    EXPECT_EQ(read("qwen25", "<tool_call>{\"name\": \"now\", \"arguments\": " + arguments + "}").calls, now);
  EXPECT_EQ(read("gpt-oss", "<|channel|>commentary to=functions.now<|message|><|call|>").calls, now);
}

// In every format, also after a call, and in any pieces.
TEST(ToolFormats, ReturnCallsWithLiteralsThatAreNoObjectAsText) {
  using Arguments = ToolFormat::Arguments;
  for (const ToolFormat& format : tool_formats()) {
    if (format.structure == ToolFormat::Structure::kChannels) continue;
    std::vector<std::string> literals = {"[1, 2]", "[{\"city\": \"A\"}]"};
    if (format.arguments == Arguments::kJson || format.arguments == Arguments::kKeyword)
      literals.insert(literals.end(), {"5", "\"x\"", "'x'", "true", "\"[1]\"", "nullable"});
    if (format.arguments == Arguments::kKeyword) literals.emplace_back("5, city='A'");
    for (const std::string& literal : literals) {
      const ToolFormat::Written& written = format.written;
      const std::string call = written_call(format, "now", literal);
      const std::string text = std::string(written.before) + call + std::string(written.after);
      const std::string valid = written_call(format, "get_weather", written_arguments(format));
      const std::string second = std::string(written.before) + valid + std::string(written.between) + call +
                                 std::string(written.after);
      SCOPED_TRACE(std::string(format.name()) + ": " + text);
      const Answer whole = read(format, {text}), after = read(format, {second});
      EXPECT_EQ(whole, (Answer{.text = text, .reasoning = "", .calls = {}}));
      ASSERT_EQ(after.calls.size(), 1u);
      EXPECT_EQ(after.calls[0].first, "get_weather");
      EXPECT_THAT(after.text, HasSubstr(literal));
      for (const bool complete : {true, false}) {
        EXPECT_EQ(read(format, bytes_of(text), complete), read(format, {text}, complete));
        EXPECT_EQ(read(format, bytes_of(second), complete), read(format, {second}, complete));
      }
    }
    if (format.arguments != Arguments::kJson) continue;
    for (const std::string literal : {"null", "None", "\"{}\"", "'{}'", "\"\""}) {
      const std::string text = std::string(format.written.before) + written_call(format, "now", literal) +
                               std::string(format.written.after);
      const std::vector<std::pair<std::string, std::string>> now = {{"now", "{}"}};
      EXPECT_EQ(read(format, {text}), (Answer{.text = "", .reasoning = "", .calls = now}))
          << format.name() << ": " << text;
      EXPECT_EQ(read(format, bytes_of(text)).calls, now) << format.name() << ": " << text;
    }
  }
}

// The arguments of a call, as a client and the next prompt read them.
TEST(ToolFormats, KeepTheDigitsOfIntegers) {
  std::mt19937 random(5);
  const std::vector<Tool> tools = {
      {"now", Json::parse(R"({"properties": {"n": {"type": ["integer", "string"]}, "m": {}}})")}};
  for (const ToolFormat& format : tool_formats())
    for (int i = 0; i < 20; ++i) {
      std::string digits = random() % 2 ? "-" : "";
      digits += static_cast<char>('1' + random() % 9);
      for (size_t left = random() % 60; left > 0; --left) digits += static_cast<char>('0' + random() % 10);
      const std::string arguments = [&] {
        switch (format.arguments) {
          case ToolFormat::Arguments::kJson:
            return "{\"n\": " + digits + ", \"m\": [" + digits + "]}";
          case ToolFormat::Arguments::kTags:
            return parameter(format.tags, "n", digits) + parameter(format.tags, "m", "[" + digits + "]");
          case ToolFormat::Arguments::kElements: {
            std::string all;
            for (const auto& [key, value] : {std::pair("n", digits), std::pair("m", "[" + digits + "]")})
              for (const std::string_view part :
                   {format.tags.key_open, std::string_view(key), format.tags.key_close,
                    std::string_view(value), format.tags.value_close, std::string_view(key),
                    format.tags.key_close})
                all += part;
            return all;
          }
          case ToolFormat::Arguments::kKeyword:
            return "n=" + digits + ", m=[" + digits + "]";
          case ToolFormat::Arguments::kQuoted:
            return "{n:" + digits + ",m:[" + digits + "]}";
        }
        return std::string();
      }();
      const ToolFormat::Written& written = format.written;
      const std::string text =
          std::string(written.before) + written_call(format, "now", arguments) + std::string(written.after);
      const Answer answer = read(*make_call_parser(format, tools), {text}, true);
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      std::string json = answer.calls[0].second;
      std::erase(json, ' ');
      EXPECT_EQ(json, "{\"n\":" + digits + ",\"m\":[" + digits + "]}") << text;
    }
}

// A text with half of a surrogate pair is not Unicode, and JSON parsers reject it.
TEST(ToolFormats, ReplaceLoneSurrogates) {
  const auto arguments = [](const std::string& text) {
    return Json::parse(
        read("qwen25", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"" + text + "\"}}")
            .calls[0]
            .second)["a"];
  };
  EXPECT_EQ(arguments(R"(\ud83d\ude00)"), "😀");
  for (const char* lone : {R"(\ud800)", R"(\ude00)"}) EXPECT_EQ(arguments(lone), "\ufffd");
  EXPECT_EQ(arguments(R"(\ud800\ud83d\ude00x)"), "\ufffd😀x");
  EXPECT_EQ(arguments(R"(\ud800\n\ud800a\ud800\u0061)"), "\ufffd\n\ufffda\ufffda");
}

TEST(ToolFormats, ReturnCallsOfUnknownToolsAsText) {
  const std::string text = "<tool_call>\n<function=mail>\n</function>\n</tool_call>";
  EXPECT_EQ(read("qwen3_coder", text), (Answer{.text = text, .reasoning = "", .calls = {}}));
}

TEST(ToolFormats, HaveDistinctNames) {
  std::set<std::string_view> names;
  for (const ToolFormat& format : tool_formats())
    for (const std::string_view name : format.names) EXPECT_TRUE(names.insert(name).second) << name;
  for (const ReasoningFormat& format : reasoning_formats())
    for (const std::string_view name : format.names) EXPECT_EQ(&parse_reasoning_format(name), &format);
  EXPECT_THROW(parse_tool_format("unknown"), Error);
  EXPECT_THROW(parse_reasoning_format("unknown"), Error);
}

// Names of SGLang 0.5.23 and vLLM 0.24.
constexpr std::string_view kToolNames[] = {"apertus",
                                           "apertus2509",
                                           "beam",
                                           "cohere_command3",
                                           "cohere_command4",
                                           "deepseek_v3",
                                           "deepseek_v31",
                                           "deepseek_v32",
                                           "deepseek_v4",
                                           "deepseekv3",
                                           "deepseekv31",
                                           "deepseekv32",
                                           "deepseekv4",
                                           "deepseekv41",
                                           "dots",
                                           "ernie45",
                                           "functiongemma",
                                           "gemma4",
                                           "gigachat3",
                                           "gigachat35",
                                           "glm",
                                           "glm45",
                                           "glm47",
                                           "gpt-oss",
                                           "granite",
                                           "granite-20b-fc",
                                           "granite4",
                                           "hermes",
                                           "hunyuan",
                                           "hunyuan_a13b",
                                           "hy_v3",
                                           "inkling",
                                           "internlm",
                                           "interns1",
                                           "iquest_q1",
                                           "jamba",
                                           "k2_horizon",
                                           "kimi_k2",
                                           "kimi_k3",
                                           "lfm2",
                                           "ling3",
                                           "llama3",
                                           "llama3_json",
                                           "llama4_json",
                                           "llama4_pythonic",
                                           "longcat",
                                           "mimo",
                                           "minicpm5",
                                           "minimax-m2",
                                           "minimax-m3",
                                           "minimax_m2",
                                           "minimax_m3",
                                           "mistral",
                                           "muse",
                                           "nanbeige",
                                           "olmo3",
                                           "openai",
                                           "phi4_mini_json",
                                           "poolside_v1",
                                           "pythonic",
                                           "qwen",
                                           "qwen25",
                                           "qwen3_coder",
                                           "qwen3_xml",
                                           "response_template",
                                           "seed_oss",
                                           "spark25",
                                           "step3",
                                           "step3p5",
                                           "trinity",
                                           "xlam"};
constexpr std::string_view kReasoningNames[] = {"apertus2509",
                                                "beam",
                                                "cohere_command3",
                                                "cohere_command4",
                                                "deepseek-r1",
                                                "deepseek-v3",
                                                "deepseek-v4",
                                                "deepseek-v41",
                                                "deepseek_r1",
                                                "deepseek_v3",
                                                "deepseek_v4",
                                                "dots",
                                                "ernie45",
                                                "gemma4",
                                                "gigachat35",
                                                "glm45",
                                                "glm47",
                                                "gpt-oss",
                                                "granite",
                                                "granite_thinking_parser",
                                                "holo2",
                                                "hunyuan",
                                                "hunyuan_a13b",
                                                "hy_v3",
                                                "inkling",
                                                "interns1",
                                                "iquest_q1",
                                                "k2_horizon",
                                                "kimi",
                                                "kimi_k2",
                                                "kimi_k3",
                                                "ling3",
                                                "mimo",
                                                "minimax",
                                                "minimax-append-think",
                                                "minimax-m3",
                                                "minimax_m2",
                                                "minimax_m2_append_think",
                                                "minimax_m3",
                                                "mistral",
                                                "muse",
                                                "nanbeige",
                                                "nemotron_3",
                                                "nemotron_v3",
                                                "olmo3",
                                                "openai_gptoss",
                                                "poolside_v1",
                                                "qwen3",
                                                "qwen3-thinking",
                                                "response_template",
                                                "seed_oss",
                                                "step3",
                                                "step3p5"};

// A name is accepted, or rejected with the reason for this format.
template <class Parse>
void check_names(std::span<const std::string_view> names, Parse parse) {
  for (const std::string_view name : names) {
    try {
      parse(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << name;
      EXPECT_THAT(error.what(), HasSubstr(std::string(name) + ": not supported: "));
    }
  }
}

TEST(ToolFormats, AcceptTheNamesOfOtherServersOrReportWhyNot) {
  check_names(kToolNames, parse_tool_format);
  check_names(kReasoningNames, parse_reasoning_format);
  for (const UnsupportedFormat& format : unsupported_tool_formats())
    EXPECT_THROW(parse_tool_format(format.name), Error) << format.name;
  for (const UnsupportedFormat& format : unsupported_reasoning_formats())
    EXPECT_THROW(parse_reasoning_format(format.name), Error) << format.name;
}

TEST(ToolFormats, ReadOtherFormsOfArguments) {
  const std::string dsml = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"";
  EXPECT_EQ(read("deepseekv4", dsml + "now\"/>\n</｜DSML｜tool_calls>").calls[0].second, "{}");
  EXPECT_EQ(
      read("deepseekv4", dsml + "get_weather\">\n{\"days\": 2}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
      (Answer{.text = "", .reasoning = "", .calls = {{"get_weather", "{\"days\": 2}"}}}));
  EXPECT_EQ(
      read(
          "k2_horizon",
          "<ifm|tool_call>get_weather\n<ifm|arg_key>city</ifm|arg_key>\n<ifm|arg_type>string</ifm|arg_type>\n"
          "<ifm|arg_value>A</ifm|arg_value>\n</ifm|tool_call>")
          .calls[0]
          .second,
      "{\"city\": \"A\"}");
  EXPECT_EQ(
      read(
          "kimi_k3",
          "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>json "
          "type=\"object\"<|sep|>{\"days\": 2}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"),
      (Answer{.text = "", .reasoning = "", .calls = {{"get_weather", "{\"days\": 2}"}}}));
  const std::string raw = "<function name=\"get_weather\"><param name=\"city\"><![CDATA[</param>]]></param>";
  EXPECT_EQ(read("minicpm5", raw + "</function>").calls[0].second, "{\"city\": \"</param>\"}");
  EXPECT_EQ(read("minicpm5", raw.substr(0, raw.size() - 11)).calls[0].second, "{\"city\": \"</param>\"}");
}

TEST(ToolFormats, ReadNestedElements) {
  const std::vector<Tool> tools = {{"plot", Json::parse(R"({"$defs": {"point": {"type": "array", "items":
    {"type": "number"}}}, "type": "object", "properties": {"points": {"type": "array", "items": {"$ref":
    "#/$defs/point"}}, "style": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"label": {"type":
    "object", "properties": {"text": {"type": "string"}, "style": {"type": "string"}, "size": {"type":
    "integer"}}}}}]}, "items": {"type": "object", "additionalProperties": {"type": "string"}},
    "title": {"type": "string"}}})")}};
  const auto arguments = [&](std::string text, bool complete = true) {
    for (size_t at; (at = text.find('~')) != std::string::npos;) text.replace(at, 1, "]<]minimax[>[");
    const std::string call = "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"plot\">" + text;
    const auto parse = [&](const std::vector<std::string>& pieces) {
      return read(*make_call_parser(parse_tool_format("minimax-m3"), tools), pieces, complete);
    };
    const Answer whole = parse({call});
    EXPECT_EQ(parse(bytes_of(call)), whole) << call;
    return whole.calls.empty() ? whole.text : whole.calls[0].second;
  };
  const std::string end = "~</invoke>\n~</tool_call>";
  EXPECT_EQ(
      arguments("~<points>~<item>~<item>1~</item>~<item>-2.5~</item>~</item>~<item>~</item>~</points>" + end),
      R"({"points": [[1, -2.5], []]})");
  EXPECT_EQ(arguments("~<style>~<label>~<text>12~</text>\n~<style>a < b~</style>~<size>3~</size>~</label>"
                      "~</style>~<title> x\n~</title>" +
                      end),
            R"({"style": {"label": {"text": "12", "style": "a < b", "size": 3}}, "title": " x\n"})");
  EXPECT_EQ(arguments("~<points>~</points>~<items>~<item>1~</item>~</items>~<title>~</title>" + end),
            R"({"points": [], "items": {"item": "1"}, "title": ""})");
  // The notation determines the types of members that the schema does not contain.
  EXPECT_EQ(
      arguments("~<a>~<item>1~</item>~<item>x~</item>~</a>~<b>~<item>1~</item>~<c>True~</c>~</b>" + end),
      R"({"a": [1, "x"], "b": {"item": 1, "c": true}})");
  EXPECT_EQ(arguments("~<points>[[1, 2]]~</points>~<style>{\"label\": {}}~</style>" + end),
            R"({"points": [[1, 2]], "style": {"label": {}}})");
  // Closing tags may be missing.
  EXPECT_EQ(arguments("~<style>~<label>~<text>a~</label>~</style>~<title>b" + end),
            R"({"style": {"label": {"text": "a"}}, "title": "b"})");
  EXPECT_EQ(arguments("~<points>~<item>~<item>1~</item>~<ite"), R"({"points": [[1]]})");
  EXPECT_EQ(arguments("~<title>a~</title>~</b>~<points>~<item>~<item>1", /*complete=*/false),
            R"({"title": "a")");
  EXPECT_EQ(arguments("~<title>a~</title>~<invoke name=\"plot\">" + end), R"({"title": "a"})");
}

TEST(ToolFormats, ReadChannels) {
  const Answer answer =
      read("gpt-oss",
           "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
           "Wait.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}");
  EXPECT_EQ(answer, (Answer{.text = "Wait.", .reasoning = "Hm.", .calls = {{"now", "{}"}}}));
  EXPECT_EQ(read("gpt-oss", "<|channel|>final<|message|>Done <b>").text, "Done <b>");
  EXPECT_EQ(read("gpt-oss", "Plain").text, "Plain");
}

// Some answers omit markers of later headers.
TEST(ToolFormats, ReadChannelsWithoutMarkers) {
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  for (const std::string final :
       {"finalDone.", "final<|message|>Done.", "final\n\nDone.", "<|channel|>finalDone.", "commentaryDone.",
        "final <|constrain|>json<|message|>Done."}) {
    const Answer answer = read("gpt-oss", thought + final);
    EXPECT_EQ(answer.reasoning, "Hm.") << final;
    EXPECT_EQ(answer.text.substr(answer.text.find_first_not_of('\n')), "Done.") << final;
  }
  EXPECT_EQ(read("gpt-oss", thought + "analysisMore.").reasoning, "Hm.More.");
  EXPECT_EQ(read("gpt-oss", "assistants are helpful").text, "assistants are helpful");
}

TEST(Reasoning, EndsWhereACallBeginsALine) {
  const ToolFormat& format = parse_tool_format("hermes");
  const auto parse = [&](const std::vector<std::string>& pieces) {
    return read(*make_reasoning_parser(
                    parse_reasoning_format("qwen3"), true,
                    [&] { return make_call_parser(format, test_tools()); }, format.opens),
                pieces, true);
  };
  const std::string call = "I call.\n<tool_call>{\"name\": \"now\"}</tool_call>";
  EXPECT_EQ(parse({call}), (Answer{.text = "", .reasoning = "I call.", .calls = {{"now", "{}"}}}));
  const std::string mention = "A <tool_call>{\"name\": \"now\"}\n<tool_call> is a tag.\n</think>B";
  const Answer whole = parse({mention});
  EXPECT_EQ(whole.text, "B");
  EXPECT_TRUE(whole.calls.empty());
  // The tag that closes the reasoning after the call is not text.
  const std::string closed = call + "\n</think>\n\nok", goes_on = call + "\nMore.\n</think>\nok </think>";
  EXPECT_EQ(parse({closed}), (Answer{.text = "ok", .reasoning = "I call.", .calls = {{"now", "{}"}}}));
  EXPECT_EQ(parse({goes_on}).text, "\nMore.ok </think>");
  EXPECT_EQ(parse({call + "\n</thi"}).text, "\n</thi");
  for (const std::string& text :
       {call, mention, closed, goes_on, call + " </thi", std::string("x\n<tool_call>{\"name\": \"no")}) {
    EXPECT_EQ(parse(bytes_of(text)), parse({text})) << text;
    for (size_t at = 1; at < text.size(); ++at)
      ASSERT_EQ(parse({text.substr(0, at), text.substr(at)}), parse({text})) << text << " " << at;
  }
}

// max_tokens may end a text within a marker, which is not text.
TEST(AnswersThatAreCutOff, EndWithoutThePartOfAMarker) {
  const auto calls = [](std::string_view name) {
    return [&format = parse_tool_format(name)] { return make_call_parser(format, test_tools()); };
  };
  const auto cut = [&](std::string_view reasoning, std::string_view tools, const std::string& text) {
    const auto parse = [&](const std::vector<std::string>& pieces) {
      return read(*make_reasoning_parser(parse_reasoning_format(reasoning), false, calls(tools),
                                         parse_tool_format(tools).opens),
                  pieces, /*complete=*/false);
    };
    const Answer whole = parse({text});
    EXPECT_EQ(parse(bytes_of(text)), whole) << text;
    return whole.reasoning + "|" + whole.text;
  };
  const std::string tag = "</think>", opener = "<tool_call>", open = "<think>";
  for (size_t size = 1; size <= tag.size(); ++size)
    EXPECT_EQ(cut("qwen3", "qwen25", "<think>Hm, 2 < 3.\n" + tag.substr(0, size)), "Hm, 2 < 3.|") << size;
  for (size_t size = 1; size < opener.size(); ++size) {
    EXPECT_EQ(cut("qwen3", "qwen25", "<think>Hm.</think>So:\n" + opener.substr(0, size)), "Hm.|So:") << size;
    EXPECT_EQ(cut("qwen3", "qwen25", "<think>Hm.\n" + opener.substr(0, size)), "Hm.|") << size;
  }
  for (size_t size = 1; size < open.size(); ++size)
    EXPECT_EQ(cut("qwen3", "qwen25", open.substr(0, size)), "|") << size;
  EXPECT_EQ(cut("qwen3", "qwen25", "<think>Hm.\n<tool_call>\n{\"name\": \"no"), "Hm.|");
  EXPECT_EQ(cut("qwen3", "qwen25", "<think>Hm.</think>2 < 3 "), "Hm.|2 < 3 ");
  // The start of a word may be text.
  EXPECT_EQ(cut("granite", "phi4_mini_json", "Here is my thought process: The H"), "The H|");
  EXPECT_EQ(cut("granite", "phi4_mini_json", "Here is my thought process: The\nHere is my re"), "The|");
  EXPECT_EQ(cut("qwen3", "phi4_mini_json", "Some fun"), "|Some fun");
  AnswerFormat format{.tools = {}, .reasoning = &parse_reasoning_format("cohere_command3")};
  ChatAnswer answer(format);
  answer.push("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>So.<|END_RESP", ChatAnswer::End::kCut);
  EXPECT_EQ(answer.joined(Kind::kText), "So.");
  EXPECT_EQ(read(parse_tool_format("gpt-oss"), {"<|channel|>final<|message|>Done.<|e"}, false).text, "Done.");
}

TEST(AnswersThatAreCutOff, ReportAnIncompleteCall) {
  const auto is_cut_in_call = [](std::string_view name, const std::string& text) {
    const AnswerFormat format{.tools = test_tools(), .tool_format = &parse_tool_format(name)};
    ChatAnswer answer(format);
    answer.push(text, ChatAnswer::End::kCut);
    return answer.is_cut_in_call();
  };
  const std::string call = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b";
  EXPECT_TRUE(is_cut_in_call("qwen25", call));
  EXPECT_FALSE(is_cut_in_call("qwen25", call + "\"}"));
  EXPECT_FALSE(is_cut_in_call("qwen25", call + "\"}}</tool_call> So"));
  EXPECT_TRUE(is_cut_in_call("qwen3_coder", "<tool_call><function=now><parameter=a>b"));
  EXPECT_TRUE(is_cut_in_call("qwen3_coder", "<tool_call><function=now>"));
  EXPECT_FALSE(is_cut_in_call("qwen3_coder", "<tool_call><function=now></function>"));
}

TEST(Reasoning, MayBeClosedWithoutBeingOpened) {
  for (const std::string& text :
       {std::string("</think>\n\nHi </think>"), std::string("\n</think>Hi </think>")}) {
    const auto parse = [](const std::vector<std::string>& pieces) {
      return read(*make_reasoning_parser(parse_reasoning_format("qwen3"), false, make_text_parser), pieces,
                  true);
    };
    EXPECT_EQ(parse({text}), (Answer{.text = "Hi </think>", .reasoning = "", .calls = {}}));
    EXPECT_EQ(parse(bytes_of(text)), parse({text}));
  }
}

// Granite 3.3 encloses its answer in tags, too, also if the tools' format drops no markers.
TEST(Reasoning, MarkersAroundTheAnswerAreDropped) {
  AnswerFormat format{.tools = test_tools(),
                      .tool_format = &parse_tool_format("granite"),
                      .reasoning = &parse_reasoning_format("granite33")};
  const std::string text =
      "<think>Hm.</think>\n<response>So.</response><|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]";
  for (const std::vector<std::string>& pieces : {std::vector{text}, bytes_of(text)}) {
    ChatAnswer answer(format);
    for (const std::string& piece : pieces) answer.push(piece, ChatAnswer::End::kNone);
    answer.push("", ChatAnswer::End::kComplete);
    EXPECT_EQ(answer.joined(Kind::kReasoning), "Hm.");
    EXPECT_EQ(answer.joined(Kind::kText), "So.");
    EXPECT_TRUE(answer.has_calls());
  }
}

// A schema may refer to itself more than once.
TEST(TagArguments, AreReadWithRecursiveSchemas) {
  std::string refs;
  for (int i = 0; i < 12; ++i) refs += (i == 0 ? "" : ", ") + std::string(R"({"$ref": "#/properties/a"})");
  const Json schema = Json::parse(R"({"properties": {"a": {"anyOf": [)" + refs + "]}}}");
  EXPECT_EQ(tag_value_to_json("1", "a", schema), "1");
  const ToolFormat::Tags& tags = parse_tool_format("minimax-m3").tags;
  const std::string text = "]<]minimax[>[<a>]<]minimax[>[<b>1]<]minimax[>[</b>]<]minimax[>[</a>";
  EXPECT_EQ(element_to_json(*first_element(text, tags, text.npos), tags, schema), R"({"b": 1})");
}

TEST(TagArguments, FollowTheSchemasTypes) {
  const Json schema = Json::parse(R"({"$defs": {"id": {"type": "string"}}, "properties": {
    "text": {"type": "string"}, "maybe": {"type": ["string", "null"]}, "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "one": {"enum": ["1", "2"]}, "fixed": {"const": "7"}, "ref": {"$ref": "#/$defs/id"}, "flag": {"type": "boolean"},
    "list": {"type": "array"}}})");
  const auto json = [&](std::string_view key, std::string_view text) {
    return tag_value_to_json(text, key, schema);
  };
  EXPECT_EQ(json("text", "12"), "\"12\"");
  EXPECT_EQ(json("maybe", "null"), "null");
  EXPECT_EQ(json("maybe", "5"), "\"5\"");
  EXPECT_EQ(json("either", "5"), "5");
  EXPECT_EQ(json("either", "5.5"), "\"5.5\"");
  EXPECT_EQ(json("one", "1"), "\"1\"");
  EXPECT_EQ(json("one", "\n1 "), "\"1\"");
  EXPECT_EQ(json("text", " 1 "), "\" 1 \"");
  EXPECT_EQ(json("fixed", "7"), "\"7\"");
  EXPECT_EQ(json("ref", "{}"), "\"{}\"");
  EXPECT_EQ(json("flag", "True"), "true");
  EXPECT_EQ(json("list", "['a', None]"), "[\"a\", null]");
  EXPECT_EQ(json("unknown", "{'a': (1, 2)}"), "{\"a\": [1, 2]}");
  EXPECT_EQ(json("unknown", "two words"), "\"two words\"");
}

}  // namespace
}  // namespace attend::serve::tool_formats_test
