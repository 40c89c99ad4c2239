#include "attend/checkpoint/parse_json.h"

#include <gtest/gtest.h>

#include "attend/checkpoint/hf/safetensors_header.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;

void expect_invalid_json(std::string_view text, std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(text.substr(0, 60));
  expect_error(ErrorCode::kCorruptFile, parts, [&] { parse_json(text, "some.json"); });
}

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(ParseJson, ParsesAllValues) {
  for (const char* text : {"null", "true", "-3", "18446744073709551615", "0.5", "\"a\\u00e9\\n\"", "[]", "{}",
                           R"({"a":[1,[],{"b":null,"c":[{"d":"e"},2.5]}],"f":{"g":{}}})"})
    EXPECT_EQ(parse_json(text, "some.json"), Json::parse(text)) << text;
  EXPECT_EQ(parse_json(" \t\r\n[1]\n ", "some.json"), Json::parse("[1]"));
}

TEST(ParseJson, ReportsPositionAndReason) {
  expect_invalid_json("", {"some.json: expected JSON, line 1, column 1", "unexpected end of input"});
  expect_invalid_json("{\n \"a\": nul}", {"line 2, column ", "invalid literal"});
  expect_invalid_json("[1e999]", {"line 1, column ", "number overflow"});
  expect_invalid_json("\"\xff\"", {"line 1, column 2", "UTF-8"});
}

TEST(ParseJson, RejectsTrailingText) {
  expect_invalid_json("{} {}", {"line 1, column 4"});
  expect_invalid_json("[1]x", {"line 1, column 4"});
  expect_invalid_json(std::string_view("[1]\0", 4), {"line 1, column 4: a NUL byte"});
  expect_invalid_json(std::string_view("[1]\n\0junk", 9), {"line 2, column 1: a NUL byte"});
  expect_invalid_json(std::string_view("[\"a\0b\"]", 7), {"line 1, column 4: a NUL byte"});
}

TEST(ParseJson, RejectsAKeyThatOccursTwice) {
  expect_invalid_json(R"({"a": 1, "b": {"a": 2}, "a": 3})", {"some.json: \"a\" occurs twice in one object"});
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": 2}])", "some.json").size(), 2u);
}

TEST(ParseJson, RejectsDeepNesting) {
  EXPECT_EQ(parse_json(nested(kMaxJsonDepth), "some.json"), Json::parse(nested(kMaxJsonDepth)));
  for (const int depth : {kMaxJsonDepth + 1, 50'000, 100'000, 1'000'000})
    expect_invalid_json(nested(depth), {"some.json: expected JSON nested at most 64 levels deep"});
}

OrderedJson parse_conversation(const std::string& text) {
  return parse_ordered_json(text, "some.json", kConversationJson);
}

void expect_invalid_conversation(const std::string& text, std::string_view message) {
  SCOPED_TRACE(text.substr(0, 60));
  expect_error(ErrorCode::kCorruptFile, {message}, [&] { parse_conversation(text); });
}

TEST(ParseJson, KeepsTheDigitsOfIntegersInConversations) {
  for (const std::string text :
       {R"({"a":[18446744073709551616,-99999999999999999999999999],"b":"é\u0001","c":{},"d":[]})",
        R"({"a":18446744073709551615,"b":-1,"c":0.5,"d":null,"e":[[true]]})",
        "123456789012345678901234567890"})
    EXPECT_EQ(json_text(parse_conversation(text)), text);
  EXPECT_EQ(json_text(parse_ordered_json("18446744073709551616", "some.json")), "1.8446744073709552e+19");
  EXPECT_EQ(excerpt(parse_conversation("[18446744073709551616, \"é\"]")),
            R"([18446744073709551616,"\u00e9"])");
}

// Models write arguments, in which Python's parser accepts equal keys.
TEST(ParseJson, KeepsTheLastOfEqualKeysInArguments) {
  EXPECT_EQ(
      json_text(parse_conversation(
          R"({"messages": [{"input": {"a": {"b": 1}, "c": 2, "a": {"b": 3, "b": 4}}}, {"arguments": 5}]})")),
      R"({"messages":[{"input":{"a":{"b":4},"c":2}},{"arguments":5}]})");
  for (const char* text :
       {R"({"a": 1, "a": 2})", R"({"messages": [{"a": 1, "a": 2}]})",
        R"({"tools": [{"input": {"a": 1, "a": 2}}]})", R"({"messages": [{"input": {}, "a": 1, "a": 2}]})",
        R"({"messages": [{"input": {}}, {"a": 1, "a": 2}]})", R"({"input": {"a": 1, "a": 2}})",
        R"({"messages": [{"input": {}}], "x": [{"input": {"a": 1, "a": 2}}]})"})
    expect_invalid_conversation(text, "\"a\" occurs twice in one object");
}

TEST(ParseJson, AcceptsDeeperArguments) {
  const auto call = [](int depth) { return R"({"messages": [{"input": )" + nested(depth) + "}]}"; };
  EXPECT_EQ(parse_conversation(call(kMaxArgumentDepth)), OrderedJson::parse(call(kMaxArgumentDepth)));
  for (const int depth : {kMaxArgumentDepth + 1, 1'000'000})
    expect_invalid_conversation(call(depth), "expected arguments of a call nested at most 180 levels deep");
  for (const std::string before :
       {R"({"messages": )", R"({"messages": [{"input": 1, "b": )", R"({"tools": )"})
    expect_invalid_conversation(before + nested(65), "expected JSON nested at most 64 levels deep");
}

// Quadratic time in the number of members would need hours here.
TEST(ParseJson, IsLinearInObjectMembers) {
  constexpr uint64_t kNumTensors = 200'000;
  std::string header = "{";
  for (uint64_t i = 0; i < kNumTensors; ++i)
    header += (i > 0 ? "," : "") + ("\"t" + std::to_string(i)) +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  header += "}";
  EXPECT_EQ(parse_safetensors_header(header, kNumTensors, "some.safetensors").size(), kNumTensors);
}

TEST(ParseJson, RejectsASafetensorsHeaderWithTrailingText) {
  expect_error(ErrorCode::kCorruptFile, {"some.safetensors: header", "a NUL byte"},
               [] { parse_safetensors_header(std::string_view("{}\0\0", 4), 0, "some.safetensors"); });
}

}  // namespace
}  // namespace attend
