// Limits of tokenizer.json steps that multiply the length of a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "attend/base/error.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/unicode.h"
#include "tests/text/tokenizer/temp_folder.h"

namespace attend {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::TempFolder;

Tokenizer tokenizer_with(const std::string& field, const json& value) {
  json file =
      json::parse(R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "<s>", "special": true}],
                              "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  file[field] = value;
  const TempFolder folder;
  folder.write("tokenizer.json", file.dump());
  return Tokenizer::from_path(folder.path());
}

json replace(const std::string& text, size_t by_num_chars) {
  return {{"type", "Replace"}, {"pattern", {{"String", text}}}, {"content", std::string(by_num_chars, 'a')}};
}

json repeated(const char* list, const json& step, size_t times) {
  return {{"type", "Sequence"}, {list, json(times, step)}};
}

template <class Fn>
void expect_unsupported(const std::string& message, Fn&& fn) {
  try {
    fn();
    ADD_FAILURE() << "no error: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(TokenizerGrowth, NamesTheNormalizerThatMultipliesAText) {
  const Tokenizer thousandfold = tokenizer_with("normalizer", repeated("normalizers", replace("a", 1000), 4));
  expect_unsupported("normalizer.normalizers[1]: expands a text to 1000000 bytes: at most 65636",
                     [&] { thousandfold.encode("a"); });
  const Tokenizer once = tokenizer_with("normalizer", replace("a", 1000));
  EXPECT_EQ(once.encode("a").size(), 1000u);
  expect_unsupported("tokenizer.json: normalizer: expands", [&] { once.encode(std::string(1000, 'a')); });
}

TEST(TokenizerGrowth, NamesTheNormalizerThatPrependsALongText) {
  const Tokenizer prepends =
      tokenizer_with("normalizer", {{"type", "Prepend"}, {"prepend", std::string(100'000, 'a')}});
  expect_unsupported("normalizer: expands a text to 100001 bytes", [&] { prepends.encode("a"); });
}

// The limit applies to all short texts between added tokens together, not to each one.
TEST(TokenizerGrowth, IsBoundedForAllPartsOfATextTogether) {
  const Tokenizer expanding = tokenizer_with("normalizer", replace("a", 60'000));
  EXPECT_EQ(expanding.encode("a<s>").size(), 60'001u);
  expect_unsupported("normalizer: expands", [&] { expanding.encode("a<s>a<s>a"); });
}

TEST(TokenizerGrowth, NamesThePreTokenizerThatDoublesATextTooOften) {
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Tokenizer doubles = tokenizer_with("pre_tokenizer", repeated("pretokenizers", byte_level, 40));
  expect_unsupported("pre_tokenizer.pretokenizers[", [&] { doubles.encode("\xc3\xa9"); });
}

TEST(TokenizerGrowth, IsBoundedForEachDecodedToken) {
  const Tokenizer expanding = tokenizer_with("decoder", repeated("decoders", replace("a", 1000), 2));
  const int32_t a = 0;
  expect_unsupported("decoder.decoders[1]: expands a text to 1000000 bytes: at most 65536", [&] {
    expanding.decode({&a, 1});
  });
}

TEST(TokenizerGrowth, RejectsTooManySteps) {
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  for (const auto& [field, list, step] :
       {std::tuple("normalizer", "normalizers", json{{"type", "NFC"}}),
        std::tuple("pre_tokenizer", "pretokenizers", digits),
        std::tuple("post_processor", "processors", json{{"type", "ByteLevel"}}),
        std::tuple("decoder", "decoders", json{{"type", "Fuse"}})}) {
    EXPECT_NO_THROW(tokenizer_with(field, repeated(list, step, 256)));
    expect_unsupported("has 3000 steps: at most 256",
                       [&] { tokenizer_with(field, repeated(list, step, 3000)); });
    // Counts steps of nested sequences too.
    expect_unsupported("steps: at most 256",
                       [&] { tokenizer_with(field, repeated(list, repeated(list, step, 100), 3)); });
  }
}

// Quadratic time in the length of a run of combining marks would need many minutes. U+0323 is ordered before
// U+0301.
TEST(TokenizerGrowth, OrdersCombiningMarksInLinearTime) {
  constexpr size_t kNumPairs = 500'000;
  std::string text, ordered;
  for (size_t i = 0; i < kNumPairs; ++i) text += "\u0301\u0323";
  for (const char* mark : {"\u0323", "\u0301"})
    for (size_t i = 0; i < kNumPairs; ++i) ordered += mark;
  tokenizer::normalize(text, tokenizer::NormalForm::kNfd);
  EXPECT_TRUE(text == ordered);
}

TEST(TokenizerGrowth, RejectsATemplateThatCopiesTheTextManyTimes) {
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json processor = {
      {"type", "TemplateProcessing"}, {"single", json(17, text)}, {"special_tokens", json::object()}};
  expect_unsupported("has the text 17 times: at most 16",
                     [&] { tokenizer_with("post_processor", processor); });
}

}  // namespace
}  // namespace attend
