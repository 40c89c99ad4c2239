// Incremental decoding of a growing sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/text/tokenizer/golden.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using testing::golden_folder;
using testing::golden_layouts;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the chunks of a sequence; the last one is the result of flush().
std::vector<std::string> stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                bool skip = true) {
  StreamDecoder decoder(tokenizer, skip);
  std::vector<std::string> chunks;
  for (const int32_t id : ids) chunks.push_back(decoder.push(id));
  chunks.push_back(decoder.flush());
  return chunks;
}

std::string join(const std::vector<std::string>& chunks) {
  std::string text;
  for (const std::string& chunk : chunks) text += chunk;
  return text;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) ids.push_back(tokenizer.token_id(token).value());
  return ids;
}

TEST(StreamDecoder, NeverSplitsAUtf8SequenceWhileStreaming) {
  for (const std::string& layout : golden_layouts()) {
    const Tokenizer tokenizer = Tokenizer::from_path(golden_folder(layout));
    for (const std::string& text : testing::golden_texts()) {
      if (text.find(tokenizer::kReplacementCharacter) != std::string::npos) continue;
      const std::vector<int32_t> ids = tokenizer.encode(text, false);
      for (const std::string& chunk : stream(tokenizer, ids, false)) {
        EXPECT_TRUE(tokenizer::is_valid_utf8(chunk));
        EXPECT_THAT(chunk, Not(HasSubstr(tokenizer::kReplacementCharacter))) << layout << ": " << text;
      }
    }
  }
}

TEST(StreamDecoder, MatchesDecodeForAnySequence) {
  std::mt19937 random(1);
  for (const std::string& layout : golden_layouts()) {
    const Tokenizer tokenizer = Tokenizer::from_path(golden_folder(layout));
    std::uniform_int_distribution<int32_t> any_id(-2, tokenizer.vocab_size() + 1);
    for (int i = 0; i < 300; ++i) {
      std::vector<int32_t> ids(random() % 30);
      for (int32_t& id : ids) id = any_id(random);
      const bool skip = i % 2 == 0;
      EXPECT_EQ(join(stream(tokenizer, ids, skip)), tokenizer.decode(ids, skip)) << layout;
    }
  }
}

TEST(StreamDecoder, EmitsCompleteTextImmediately) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("gpt2"));
  // Bytes E4 B8 AD of one character as three tokens, between two other characters.
  const std::vector<int32_t> ids = ids_of(tokenizer, {"a", "ä", "¸", "Ń", "b"});
  EXPECT_THAT(stream(tokenizer, ids), ElementsAre("a", "", "", "中", "b", ""));
}

TEST(StreamDecoder, ReplacesACharacterThatIsCutOff) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("gpt2"));
  EXPECT_THAT(stream(tokenizer, ids_of(tokenizer, {"a", "ä", "¸"})), ElementsAre("a", "", "", "\uFFFD"));
  EXPECT_THAT(stream(tokenizer, ids_of(tokenizer, {"ä", "¸", "b"})), ElementsAre("", "", "\uFFFDb", ""));
}

TEST(StreamDecoder, BuffersByteTokensUntilTheRunEnds) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  const std::vector<std::string> emoji = {"a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"};
  std::vector<std::string> tokens = emoji;
  tokens.push_back("b");
  EXPECT_THAT(stream(tokenizer, ids_of(tokenizer, tokens)), ElementsAre("a", "", "", "", "", "😀b", ""));
  EXPECT_THAT(stream(tokenizer, ids_of(tokenizer, emoji)), ElementsAre("a", "", "", "", "", "😀"));
  // One extra byte makes the whole run invalid UTF-8.
  tokens = emoji;
  tokens.push_back("<0xFF>");
  EXPECT_THAT(stream(tokenizer, ids_of(tokenizer, tokens)),
              ElementsAre("a", "", "", "", "", "", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"));
}

TEST(StreamDecoder, StripsTheFirstSentencePieceSpaceOnly) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  EXPECT_THAT(stream(tokenizer, ids_of(tokenizer, {"<s>", "▁", "a", "▁", "▁"})),
              ElementsAre("", "", "a", " ", " ", ""));
}

TEST(StreamDecoder, StartsANewSequenceAfterAFlush) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  const std::vector<int32_t> ids = tokenizer.encode("Once more 😀");
  StreamDecoder decoder(tokenizer);
  for (int i = 0; i < 3; ++i) {
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    EXPECT_EQ(text + decoder.flush(), "Once more 😀");
  }
}

TEST(StreamDecoder, MayOutliveAndMoveAwayFromItsTokenizer) {
  std::vector<StreamDecoder> decoders;
  std::vector<int32_t> ids;
  {
    const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("qwen2"));
    ids = tokenizer.encode("中文");
    decoders.emplace_back(tokenizer);
    decoders.emplace_back(tokenizer);
  }
  std::string text = decoders[0].push(ids[0]);
  StreamDecoder moved = std::move(decoders[0]);
  for (size_t i = 1; i < ids.size(); ++i) text += moved.push(ids[i]);
  EXPECT_EQ(text + moved.flush(), "中文");
}

}  // namespace
}  // namespace attend
