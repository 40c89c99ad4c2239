// Text functions of the tokenizer: UTF-8, Unicode, splitting and searching.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/text/tokenizer/pipeline/split.h"
#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/token_trie.h"
#include "attend/text/tokenizer/unicode.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

using ::testing::ElementsAre;

std::string repair(std::string_view bytes) {
  Utf8Repair utf8;
  std::string out;
  utf8.append(bytes, out);
  utf8.finish(out);
  return out;
}

TEST(Utf8, ReadsEveryCharacterThatItWrites) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_char(text, code);
    ASSERT_TRUE(is_valid_utf8(text)) << static_cast<uint32_t>(code);
    ASSERT_TRUE(read_char(text, 0).code == code);
    ASSERT_EQ(read_char(text, 0).bytes, text.size());
    ASSERT_EQ(char_bytes(text[0]), text.size());
    ASSERT_TRUE(read_char_before("x" + text, 1 + text.size()).code == code);
  }
}

TEST(Utf8, RejectsSurrogatesOverlongFormsAndTooLargeValues) {
  for (const char* bytes :
       {"\xED\xA0\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF", "\xE4\xB8", "12345678\xFF", "é\xC3"}) {
    EXPECT_FALSE(is_valid_utf8(bytes)) << ::testing::PrintToString(bytes);
  }
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8(std::string_view("\0", 1)));
}

TEST(Utf8, ReplacesEachMaximalInvalidPartLikePython) {
  EXPECT_EQ(repair("a\xF0\x9F\x98z"), "a\uFFFDz");          // cut off by another character
  EXPECT_EQ(repair("\xF0\x9F\x98"), "\uFFFD");              // cut off by the end
  EXPECT_EQ(repair("\xF0\x80\x80"), "\uFFFD\uFFFD\uFFFD");  // invalid from its second byte on
  EXPECT_EQ(repair("\xE4\xB8\xE4\xB8\xAD"), "\uFFFD中");
  EXPECT_EQ(repair("\x80\x80"), "\uFFFD\uFFFD");
}

TEST(Utf8, RepairsAStreamLikeTheWholeText) {
  const std::string bytes = "a中\xF0\x9F\x98\x80\xFF\xE4\xB8z\xC3\xA9\xF0\x9F";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    Utf8Repair utf8;
    std::string out;
    for (size_t at = 0; at < bytes.size(); at += step)
      utf8.append(std::string_view(bytes).substr(at, step), out);
    utf8.finish(out);
    EXPECT_EQ(out, repair(bytes)) << step;
  }
}

TEST(Unicode, NormalizesRunsBetweenAscii) {
  const auto normalized = [](std::string text, NormalForm form) {
    normalize(text, form);
    return text;
  };
  EXPECT_EQ(normalized("abc", NormalForm::kNfc), "abc");
  EXPECT_EQ(normalized("xe\u0301y", NormalForm::kNfc), "x\u00E9y");
  EXPECT_EQ(normalized("e\u0323\u0301", NormalForm::kNfc), "\u1EB9\u0301");
  EXPECT_EQ(normalized("\u0301a", NormalForm::kNfc), "\u0301a");
  EXPECT_EQ(normalized("\u1100\u1161\u11A8", NormalForm::kNfc), "\uAC01");
  EXPECT_EQ(normalized("\uAC00\u11A8", NormalForm::kNfc), "\uAC01");
  EXPECT_EQ(normalized("a\u00E9b\u00E8", NormalForm::kNfd), "ae\u0301be\u0300");
  EXPECT_EQ(normalized("\uFB01\u00BD \uFF21", NormalForm::kNfkc), "fi1\u20442 A");
  EXPECT_EQ(normalized("\u1E69", NormalForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(normalized("中文\U0001F600", NormalForm::kNfc), "中文\U0001F600");
}

TEST(Unicode, ConvertsCharactersToLowerCaseOneByOne) {
  EXPECT_EQ(to_lowercase("ÀÉß ΣΑΣ \u0130 \u01C5"), "àéß σασ i\u0307 \u01C6");
}

TEST(ByteLevel, HasAPrintableCharacterForEveryByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  std::string mapped;
  append_byte_level(bytes, mapped);
  EXPECT_TRUE(is_valid_utf8(mapped));
  EXPECT_EQ(decode_byte_level(mapped), bytes);
  mapped.clear();
  append_byte_level(" a\n\xFF", mapped);
  EXPECT_EQ(mapped, "ĠaĊÿ");
  EXPECT_EQ(decode_byte_level("a b"), std::nullopt);
  EXPECT_EQ(decode_byte_level("中"), std::nullopt);
}

std::vector<std::string> pieces(std::string_view text, SplitBehavior behavior, bool invert = false) {
  std::vector<Span> matches;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '-') matches.push_back({i, i + 1});
  }
  std::vector<Span> spans;
  split(text.size(), matches, invert, behavior, spans);
  std::vector<std::string> out;
  for (const Span& span : spans) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}

TEST(Split, HonorsSplitBehavior) {
  const std::string_view text = "the-final--countdown";
  EXPECT_THAT(pieces(text, SplitBehavior::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(pieces(text, SplitBehavior::kIsolated),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(pieces(text, SplitBehavior::kMergedWithPrevious),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(pieces(text, SplitBehavior::kMergedWithNext), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(pieces(text, SplitBehavior::kContiguous), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(Split, SwapsMatchesAndTheRestWhenInverted) {
  EXPECT_THAT(pieces("the-final--", SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(pieces("-a-", SplitBehavior::kMergedWithNext, true), ElementsAre("-", "a-"));
}

TEST(TokenTrie, FindsTheLongestMatchAtTheFirstPosition) {
  TokenTrie trie;
  trie.add("ab", 1);
  trie.add("abcd", 2);
  trie.add("bcde", 3);
  const auto found = [&](std::string_view text, size_t from = 0) {
    const auto match = trie.find(text, from);
    return match ? std::tuple(match->span.begin, match->span.end, match->value)
                 : std::tuple(size_t{0}, size_t{0}, 0u);
  };
  EXPECT_EQ(found("xabcde"), std::tuple(1u, 5u, 2u));
  EXPECT_EQ(found("xabcx"), std::tuple(1u, 3u, 1u));
  EXPECT_EQ(found("xabcde", 2), std::tuple(2u, 6u, 3u));
  EXPECT_EQ(found("xyz"), std::tuple(0u, 0u, 0u));
}

}  // namespace
}  // namespace attend::tokenizer
