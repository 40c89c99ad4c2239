// Compares tokenizers in published layouts with the `tokenizers` library.
#include "tests/text/tokenizer/golden.h"

#include <gtest/gtest.h>

#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

using testing::Golden;
using testing::GoldenCase;
using testing::StreamCase;

class TokenizerGolden : public ::testing::TestWithParam<std::string> {
 protected:
  Golden golden_ = testing::read_golden(GetParam());
  Tokenizer tokenizer_ = Tokenizer::from_path(testing::golden_folder(GetParam()));
};

TEST_P(TokenizerGolden, EncodesEveryTextLikeTheLibrary) {
  for (const GoldenCase& one : golden_.cases) {
    if (!one.encodes) continue;
    SCOPED_TRACE(::testing::PrintToString(one.text));
    EXPECT_EQ(tokenizer_.encode(one.text, false), one.ids);
  }
}

TEST_P(TokenizerGolden, AddsTheSpecialTokensThatTheLibraryAdds) {
  for (const GoldenCase& one : golden_.cases) {
    if (!one.encodes) continue;
    std::vector<int32_t> ids = golden_.before;
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    ids.insert(ids.end(), golden_.after.begin(), golden_.after.end());
    EXPECT_EQ(tokenizer_.encode(one.text), ids) << ::testing::PrintToString(one.text);
  }
}

TEST_P(TokenizerGolden, DecodesEverySequenceLikeTheLibrary) {
  for (const GoldenCase& one : golden_.cases) {
    SCOPED_TRACE(::testing::PrintToString(one.ids));
    EXPECT_EQ(tokenizer_.decode(one.ids, true), one.skip);
    EXPECT_EQ(tokenizer_.decode(one.ids, false), one.keep);
  }
}

TEST_P(TokenizerGolden, StreamsTheTextThatItDecodes) {
  for (const GoldenCase& one : golden_.cases) {
    for (const bool skip : {true, false}) {
      SCOPED_TRACE(::testing::PrintToString(one.ids));
      StreamDecoder stream(tokenizer_, skip);
      std::string text;
      for (const int32_t id : one.ids) {
        const std::string chunk = stream.push(id);
        EXPECT_TRUE(tokenizer::is_valid_utf8(chunk));
        text += chunk;
      }
      text += stream.flush();
      EXPECT_EQ(text, skip ? one.skip : one.keep);
    }
  }
}

TEST_P(TokenizerGolden, StreamsTheTextOfEveryPrefixOfAnAnswerLikeTheLibrary) {
  for (const StreamCase& one : testing::read_stream_cases(GetParam())) {
    SCOPED_TRACE(::testing::PrintToString(one.ids) + " after " + ::testing::PrintToString(one.prompt));
    ASSERT_EQ(one.chunks.size(), one.ids.size());
    ASSERT_EQ(one.rest.size(), one.ids.size());
    for (size_t num_ids = 1; num_ids <= one.ids.size(); ++num_ids) {
      StreamDecoder stream(tokenizer_, one.skip);
      stream.set_prompt(one.prompt);
      std::vector<std::string> chunks;
      for (size_t i = 0; i < num_ids; ++i) chunks.push_back(stream.push(one.ids[i]));
      EXPECT_EQ(chunks, std::vector(one.chunks.begin(), one.chunks.begin() + static_cast<int>(num_ids)));
      EXPECT_EQ(stream.flush(), one.rest[num_ids - 1]) << "of " << num_ids << " ids";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TokenizerGolden, ::testing::ValuesIn(testing::golden_layouts()),
                         [](const auto& layout) { return layout.param; });

}  // namespace
}  // namespace attend
