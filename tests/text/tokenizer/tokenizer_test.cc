// Behavior of Tokenizer: queries, special tokens, invalid input, threads.
#include "attend/text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "attend/base/error.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/text/tokenizer/golden.h"
#include "tests/text/tokenizer/temp_folder.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using testing::golden_folder;
using ::testing::IsEmpty;
using testing::TempFolder;

Tokenizer layout(const std::string& name) { return Tokenizer::from_path(golden_folder(name)); }

TEST(Tokenizer, LoadsAFolderOrTheFileInIt) {
  const Tokenizer folder = Tokenizer::from_path(golden_folder("llama3"));
  const Tokenizer file = Tokenizer::from_path(golden_folder("llama3") + "/tokenizer.json");
  EXPECT_EQ(folder.vocab_size(), file.vocab_size());
  EXPECT_EQ(folder.encode("The same text."), file.encode("The same text."));
}

TEST(Tokenizer, FindsTokensByIdAndByText) {
  const Tokenizer tokenizer = layout("llama3");
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    EXPECT_EQ(tokenizer.token_id(tokenizer.token(id)), id);
  EXPECT_EQ(tokenizer.token(tokenizer.vocab_size() - 1), "<|eot_id|>");
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
}

TEST(Tokenizer, DistinguishesSpecialTokens) {
  const Tokenizer tokenizer = layout("qwen2");
  EXPECT_TRUE(tokenizer.is_special(tokenizer.token_id("<|im_end|>").value()));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.token_id("<think>").value()));  // added, but not special
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.vocab_size()));
}

TEST(Tokenizer, EncodesCharactersWithoutAScoreAsBytesOrUnknown) {
  nlohmann::json vocab = nlohmann::json::parse(R"([["<unk>", 0.0], ["a", -1.0]])");
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 7> token;
    std::snprintf(token.data(), token.size(), "<0x%02X>", byte);
    vocab.push_back(nlohmann::json::array({token.data(), -2.0}));
  }
  const auto tokenizer = [&](bool byte_fallback) {
    const TempFolder folder;
    const nlohmann::json model = {
        {"type", "Unigram"}, {"vocab", vocab}, {"unk_id", 0}, {"byte_fallback", byte_fallback}};
    folder.write("tokenizer.json", nlohmann::json{{"model", model}}.dump());
    return Tokenizer::from_path(folder.path());
  };
  // Two unknown characters in a row are one token.
  EXPECT_THAT(tokenizer(false).encode("aéßa"), ElementsAre(1, 0, 1));
  EXPECT_THAT(tokenizer(true).encode("aéßa"), ElementsAre(1, 2 + 0xC3, 2 + 0xA9, 2 + 0xC3, 2 + 0x9F, 1));
}

TEST(Tokenizer, RejectsAnIdOutsideOfTheVocabulary) {
  const Tokenizer tokenizer = layout("gpt2");
  EXPECT_THROW(tokenizer.token(-1), Error);
  try {
    tokenizer.token(501);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "token id 501: the tokenizer has ids 0 to 500");
  }
}

TEST(Tokenizer, SkipsIdsOutsideOfTheVocabularyWhenDecoding) {
  const Tokenizer tokenizer = layout("gpt2");
  std::vector<int32_t> ids = tokenizer.encode("Hello");
  ids.insert(ids.begin() + 1, {-1, tokenizer.vocab_size(), INT32_MAX, INT32_MIN});
  EXPECT_EQ(tokenizer.decode(ids), "Hello");
}

TEST(Tokenizer, EncodesAnEmptyTextAsSpecialTokensOnly) {
  EXPECT_THAT(layout("gpt2").encode(""), IsEmpty());
  EXPECT_THAT(layout("llama2").encode(""), ElementsAre(1));
  EXPECT_THAT(layout("llama2").encode("", false), IsEmpty());
  EXPECT_EQ(layout("llama2").decode({}), "");
}

TEST(Tokenizer, ReplacesBytesThatAreNotUtf8) {
  const Tokenizer tokenizer = layout("llama3");
  const std::string_view u = tokenizer::kReplacementCharacter;
  const auto expect_same = [&](std::string_view bytes, const std::string& repaired) {
    EXPECT_EQ(tokenizer.encode(bytes), tokenizer.encode(repaired)) << ::testing::PrintToString(bytes);
  };
  expect_same("a\xFFz", "a" + std::string(u) + "z");
  expect_same("\xE4\xB8", std::string(u));  // one replacement for a character that is cut off
  expect_same("\xC0\xAF", std::string(u) + std::string(u));                       // overlong form
  expect_same("\xED\xA0\x80", std::string(u) + std::string(u) + std::string(u));  // surrogate
}

TEST(Tokenizer, KeepsNulBytes) {
  const Tokenizer tokenizer = layout("llama3");
  const std::string text("a\0b\0", 4);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, EncodesALongWordInLinearTime) {
  // Quadratic time would be 10^10 steps per layout and exceed the test's timeout.
  std::string word;
  for (int i = 0; i < 100'000; ++i) word += static_cast<char>('a' + (i * 7919 + i / 13) % 26);
  for (const char* name : {"llama3", "gpt2", "llama2", "mistral", "gemma"}) {
    const Tokenizer tokenizer = layout(name);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word) << name;
  }
  const std::string spaces(100'000, ' ');
  EXPECT_EQ(layout("llama3").decode(layout("llama3").encode(spaces)), spaces);
}

// Only a part of a long text is encoded. The tokens are those of the whole text.
TEST(Tokenizer, TruncatesAsIfTheWholeTextWereEncoded) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    for (const std::string& each : testing::golden_texts()) text += each + " ";
  for (const std::string& name : testing::golden_layouts()) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = layout(name);
    const std::vector<int32_t> all = tokenizer.encode(text, /*add_special_tokens=*/false);
    for (const size_t count : {size_t{1}, size_t{50}, size_t{700}, all.size() - 1, all.size()}) {
      const auto kept = static_cast<std::ptrdiff_t>(count);
      bool is_truncated = false;
      EXPECT_EQ(tokenizer.encode_truncated(text, count, TruncationSide::kRight, false, &is_truncated),
                std::vector<int32_t>(all.begin(), all.begin() + kept))
          << count;
      EXPECT_EQ(is_truncated, count < all.size());
      EXPECT_EQ(tokenizer.encode_truncated(text, count, TruncationSide::kLeft, false),
                std::vector<int32_t>(all.end() - kept, all.end()))
          << count;
    }
    const std::vector<int32_t> whole = tokenizer.encode(text), cut = tokenizer.encode_truncated(text, 60);
    EXPECT_EQ(cut.size(), 60u);
    EXPECT_EQ(cut.front(), whole.front());
  }
}

TEST(Tokenizer, TruncatesALongTextInTimeOfTheKeptTokens) {
  const Tokenizer tokenizer = layout("llama3");
  const std::string text(size_t{64} << 20, 'a');
  for (const TruncationSide side : {TruncationSide::kLeft, TruncationSide::kRight})
    EXPECT_EQ(tokenizer.encode_truncated(text, 20, side).size(), 20u);
}

TEST(Tokenizer, EncodesConsistentlyFromManyThreads) {
  const testing::Golden golden = testing::read_golden("llama2");
  const Tokenizer tokenizer = layout("llama2");
  std::vector<int> failures(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      for (const testing::GoldenCase& one : golden.cases) {
        if (one.encodes && tokenizer.encode(one.text, false) != one.ids) ++failures[t];
        if (tokenizer.decode(one.ids) != one.skip) ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(failures, ElementsAre(0, 0, 0, 0));
}

// --- files next to tokenizer.json

class TokenizerConfigFiles : public ::testing::Test {
 protected:
  TokenizerConfigFiles() {
    folder_.write("tokenizer.json", testing::read_file(golden_folder("qwen2") + "/tokenizer.json"));
  }
  TempFolder folder_;
};

TEST_F(TokenizerConfigFiles, NameTheSpecialTokens) {
  folder_.write(
      "tokenizer_config.json",
      R"({"bos_token": null, "eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>"})");
  const Tokenizer tokenizer = Tokenizer::from_path(folder_.path());
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.eos_id(), tokenizer.token_id("<|im_end|>"));
  EXPECT_EQ(tokenizer.pad_id(), tokenizer.token_id("<|endoftext|>"));
}

TEST_F(TokenizerConfigFiles, MayBeMissing) {
  const Tokenizer tokenizer = Tokenizer::from_path(folder_.path());
  EXPECT_EQ(tokenizer.eos_id(), std::nullopt);
}

TEST_F(TokenizerConfigFiles, FirstFileThatSetsARoleWins) {
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder_.write("special_tokens_map.json", R"({"eos_token": "<|endoftext|>", "bos_token": "<|im_start|>"})");
  const Tokenizer tokenizer = Tokenizer::from_path(folder_.path());
  EXPECT_EQ(tokenizer.token(tokenizer.eos_id().value()), "<|im_end|>");
  EXPECT_EQ(tokenizer.token(tokenizer.bos_id().value()), "<|im_start|>");
}

TEST_F(TokenizerConfigFiles, AppendTokens) {
  const int32_t next = Tokenizer::from_path(folder_.path()).vocab_size();
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {")" + std::to_string(next) +
                                             R"(": {"content": "<new>", "special": true}},)"
                                             R"("additional_special_tokens": ["<newer>"]})");
  const Tokenizer tokenizer = Tokenizer::from_path(folder_.path());
  EXPECT_THAT(tokenizer.encode("<new><newer>"), ElementsAre(next, next + 1));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<new>b")), "ab");
}

// As transformers 5.24 does.
TEST_F(TokenizerConfigFiles, MakeTokensWithARoleSpecial) {
  const auto is_special = [&](const char* config) {
    folder_.write("tokenizer_config.json", config);
    const Tokenizer tokenizer = Tokenizer::from_path(folder_.path());
    return tokenizer.is_special(tokenizer.token_id("<think>").value());
  };
  EXPECT_FALSE(is_special("{}")) << "tokenizer.json declares it with special false";
  EXPECT_TRUE(is_special(R"({"pad_token": "<think>"})"));
  EXPECT_TRUE(is_special(R"({"extra_special_tokens": {"think_token": "<think>"}})"));
  EXPECT_FALSE(is_special(R"({"additional_special_tokens": ["<think>"]})"));
  EXPECT_FALSE(is_special(R"({"extra_special_tokens": ["<think>"]})"));
}

TEST_F(TokenizerConfigFiles, AreRejectedIfTheirIdsDifferFromTheTokenizer) {
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {"9999": {"content": "<new>"}}})");
  EXPECT_THROW(Tokenizer::from_path(folder_.path()), Error);
}

TEST_F(TokenizerConfigFiles, AreRejectedIfTheyAreNotJson) {
  folder_.write("tokenizer_config.json", "{");
  EXPECT_THROW(Tokenizer::from_path(folder_.path()), Error);
}

}  // namespace
}  // namespace attend
