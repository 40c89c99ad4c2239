// Tokenizers in GGUF files encode and decode like the Hugging Face originals.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "attend/checkpoint/checkpoint.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/test_files.h"
#include "tests/text/tokenizer/golden.h"

namespace attend {
namespace {

using nlohmann::json;
using test::expect_error;
using test::GgufBytes;
using test::TempDir;
using testing::Golden;
using testing::GoldenCase;

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

json read_tokenizer(const std::string& layout) {
  std::ifstream file(testing::golden_folder(layout) + "/tokenizer.json");
  return json::parse(file);
}

// Tokens and types by id, as llama.cpp's converter writes them.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

Tokens list_tokens(const json& tokenizer) {
  std::map<int, std::pair<std::string, int32_t>> by_id;
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items())
    by_id[id] = {token, token.size() == 6 && token.starts_with("<0x") ? kByte : kNormal};
  for (const json& added : tokenizer["added_tokens"])
    by_id[added["id"]] = {added["content"], added["special"].get<bool>() ? kControl : kUserDefined};
  Tokens tokens;
  for (const auto& [id, token] : by_id) {
    tokens.texts.push_back(token.first);
    const bool unknown =
        tokenizer["model"].contains("unk_token") && tokenizer["model"]["unk_token"] == token.first;
    tokens.types.push_back(unknown ? kUnknown : token.second);
  }
  return tokens;
}

std::pair<std::string, std::string> split_merge(const json& merge) {
  if (merge.is_array()) return {merge[0], merge[1]};
  const auto text = merge.get<std::string>();
  return {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
}

GgufBytes common_fields(const char* model, const Tokens& tokens, const Golden& golden) {
  GgufBytes file;
  file.add("general.architecture", "llama")
      .add("tokenizer.ggml.model", model)
      .add("tokenizer.ggml.tokens", tokens.texts)
      .add("tokenizer.ggml.token_type", tokens.types)
      .add("tokenizer.ggml.add_bos_token", !golden.before.empty())
      .add("tokenizer.ggml.add_eos_token", !golden.after.empty());
  if (!golden.before.empty())
    file.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(golden.before[0]));
  if (!golden.after.empty()) file.add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(golden.after[0]));
  return file;
}

Tokenizer read_gguf(const GgufBytes& file) {
  const TempDir dir;
  return Tokenizer::find(*open_checkpoint(dir.write("model.gguf", file.bytes()))).value();
}

// Layout of the goldens, and name of its pre-tokenizer in GGUF files.
struct ByteLevel {
  const char *layout, *pre;
};

class GgufByteLevel : public ::testing::TestWithParam<ByteLevel> {
 protected:
  Golden golden_ = testing::read_golden(GetParam().layout);

  Tokenizer tokenizer() const {
    const json original = read_tokenizer(GetParam().layout);
    std::vector<std::string> merges;
    for (const json& merge : original["model"]["merges"]) {
      const auto [left, right] = split_merge(merge);
      if (left != "#version:") merges.push_back(left + " " + right);
    }
    GgufBytes file = common_fields("gpt2", list_tokens(original), golden_);
    file.add("tokenizer.ggml.pre", GetParam().pre).add("tokenizer.ggml.merges", merges);
    return read_gguf(file);
  }
};

TEST_P(GgufByteLevel, EncodesAndDecodesLikeTheOriginal) {
  const Tokenizer tokenizer = this->tokenizer();
  for (const GoldenCase& one : golden_.cases) {
    SCOPED_TRACE(::testing::PrintToString(one.text));
    EXPECT_EQ(tokenizer.decode(one.ids, true), one.skip);
    EXPECT_EQ(tokenizer.decode(one.ids, false), one.keep);
    if (!one.encodes) continue;
    EXPECT_EQ(tokenizer.encode(one.text, false), one.ids);
    std::vector<int32_t> ids = golden_.before;
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    ids.insert(ids.end(), golden_.after.begin(), golden_.after.end());
    EXPECT_EQ(tokenizer.encode(one.text), ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, GgufByteLevel,
                         ::testing::Values(ByteLevel{"gpt2", "gpt-2"}, ByteLevel{"qwen2", "qwen2"},
                                           ByteLevel{"llama3", "llama-bpe"},
                                           ByteLevel{"deepseek", "deepseek-v3"},
                                           ByteLevel{"o200k", "gpt-4o"}),
                         [](const auto& one) { return std::string(one.param.layout); });

// SentencePiece's algorithm: merges the neighbors whose concatenation is the token with the highest score,
// the leftmost first. Characters without a token become bytes.
std::vector<int32_t> encode_by_scores(const Tokens& tokens, const std::vector<float>& scores,
                                      const std::string& text) {
  std::map<std::string, int32_t> ids;
  for (size_t id = 0; id < tokens.texts.size(); ++id)
    if (tokens.types[id] == kNormal || tokens.types[id] == kUserDefined)
      ids[tokens.texts[id]] = static_cast<int32_t>(id);
  std::vector<std::string> symbols;
  for (const char byte : text) {
    if ((static_cast<unsigned char>(byte) & 0xc0) != 0x80) symbols.emplace_back();
    symbols.back() += byte;
  }
  for (;;) {
    size_t best = symbols.size();
    float best_score = 0.0f;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ids.find(symbols[i] + symbols[i + 1]);
      if (found == ids.end()) continue;
      const float score = scores[static_cast<size_t>(found->second)];
      if (best == symbols.size() || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<int>(best) + 1);
  }
  std::vector<int32_t> result;
  for (const std::string& symbol : symbols) {
    if (const auto found = ids.find(symbol); found != ids.end()) {
      result.push_back(found->second);
      continue;
    }
    for (const char byte : symbol) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
      result.push_back(static_cast<int32_t>(std::ranges::find(tokens.texts, name) - tokens.texts.begin()));
    }
  }
  return result;
}

std::string with_marks(const std::string& text, bool adds_space) {
  std::string marked = adds_space && !text.empty() ? "\u2581" : "";
  for (const char byte : text) marked += byte == ' ' ? std::string("\u2581") : std::string(1, byte);
  return marked;
}

class GgufSentencePiece : public ::testing::TestWithParam<const char*> {
 protected:
  const bool adds_space_ = std::string_view(GetParam()) == "llama2";
  const Golden golden_ = testing::read_golden(GetParam());
  const json original_ = read_tokenizer(GetParam());
  const Tokens tokens_ = list_tokens(original_);

  // Tokens that are merged earlier have higher scores.
  std::vector<float> scores() const {
    std::map<std::string, float> by_text;
    float score = 0.0f;
    for (const json& merge : original_["model"]["merges"]) {
      const auto [left, right] = split_merge(merge);
      by_text.try_emplace(left + right, score);
      score -= 1.0f;
    }
    std::vector<float> scores;
    for (const std::string& text : tokens_.texts)
      scores.push_back(by_text.contains(text) ? by_text[text] : -1e6f);
    return scores;
  }
  Tokenizer tokenizer() const {
    GgufBytes file = common_fields("llama", tokens_, golden_);
    file.add("tokenizer.ggml.scores", scores()).add("tokenizer.ggml.add_space_prefix", adds_space_);
    return read_gguf(file);
  }
};

TEST_P(GgufSentencePiece, MergesByScores) {
  const Tokenizer tokenizer = this->tokenizer();
  size_t num_compared = 0;
  for (const GoldenCase& one : golden_.cases) {
    const auto has_special = std::ranges::any_of(tokens_.texts, [&](const std::string& token) {
      const auto id = static_cast<size_t>(&token - tokens_.texts.data());
      const bool added = tokens_.types[id] != kNormal && tokens_.types[id] != kByte;
      return added && one.text.find(token) != std::string::npos;
    });
    if (!one.encodes || has_special) continue;
    ++num_compared;
    EXPECT_EQ(tokenizer.encode(one.text, false),
              encode_by_scores(tokens_, scores(), with_marks(one.text, adds_space_)))
        << ::testing::PrintToString(one.text);
  }
  EXPECT_GT(num_compared, 100u);
}

TEST_P(GgufSentencePiece, DecodesLikeTheOriginal) {
  const Tokenizer tokenizer = this->tokenizer();
  for (const GoldenCase& one : golden_.cases) {
    SCOPED_TRACE(::testing::PrintToString(one.ids));
    EXPECT_EQ(tokenizer.decode(one.ids, true), one.skip);
    EXPECT_EQ(tokenizer.decode(one.ids, false), one.keep);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, GgufSentencePiece, ::testing::Values("llama2", "gemma"),
                         [](const auto& one) { return std::string(one.param); });

GgufBytes small_file() {
  return GgufBytes().add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<s>"});
}

TEST(GgufTokenizer, IsAbsentWithoutAModel) {
  const TempDir dir;
  EXPECT_FALSE(Tokenizer::find(*open_checkpoint(dir.write("a.gguf", GgufBytes().bytes()))));
}

TEST(GgufTokenizer, RejectsUnknownModelsAndPreTokenizers) {
  expect_error(ErrorCode::kUnsupported, {"model.gguf", "tokenizer.ggml.model", "\"rwkv\"", "gpt2"},
               [] { read_gguf(small_file().add("tokenizer.ggml.model", "rwkv")); });
  expect_error(ErrorCode::kUnsupported, {"model.gguf", "tokenizer.ggml.pre", "\"other\"", "qwen2"}, [] {
    read_gguf(small_file().add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "other"));
  });
}

TEST(GgufTokenizer, RejectsTokensThatAreNotUtf8) {
  for (const std::string token :
       {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80"})
    expect_error(ErrorCode::kCorruptFile, {"tokenizer.ggml.tokens", "element 1", "UTF-8"}, [&] {
      read_gguf(GgufBytes()
                    .add("tokenizer.ggml.model", "gpt2")
                    .add("tokenizer.ggml.pre", "gpt-2")
                    .add("tokenizer.ggml.tokens", std::vector<std::string>{"\u00e9\u2581\U0001f600", token})
                    .add("tokenizer.ggml.merges", std::vector<std::string>{}));
    });
}

TEST(GgufTokenizer, RejectsFieldsOfOtherSizes) {
  const auto gpt2 = [] {
    return small_file().add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
  };
  expect_error(ErrorCode::kCorruptFile, {"tokenizer.ggml.merges", "missing"}, [&] { read_gguf(gpt2()); });
  expect_error(ErrorCode::kCorruptFile, {"tokenizer.ggml.token_type", "4 integers"},
               [&] { read_gguf(gpt2().add("tokenizer.ggml.token_type", std::vector<int32_t>{1})); });
  expect_error(ErrorCode::kCorruptFile, {"tokenizer.ggml.scores", "4 numbers"}, [] {
    read_gguf(small_file()
                  .add("tokenizer.ggml.model", "llama")
                  .add("tokenizer.ggml.scores", std::vector<float>{0.0f}));
  });
  expect_error(ErrorCode::kCorruptFile, {"tokenizer.ggml.bos_token_id", "4", "one of 4 tokens"}, [&] {
    read_gguf(gpt2()
                  .add("tokenizer.ggml.merges", std::vector<std::string>{"a b"})
                  .add("tokenizer.ggml.add_bos_token", true)
                  .add("tokenizer.ggml.bos_token_id", uint32_t{4}));
  });
}

}  // namespace
}  // namespace attend
