// Oniguruma patterns translated to PCRE2. Expected values are those of the `tokenizers` library.
#include "attend/text/tokenizer/regex/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/text/tokenizer/regex/onig_pattern.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> find_all(std::string_view pattern, std::string_view text) {
  const Regex regex(onig_to_pcre2(pattern, "test"), "test");
  RegexScratch scratch;
  std::vector<Span> matches;
  regex.find_all(text, scratch, matches);
  std::vector<std::string> found;
  for (const Span& match : matches) found.emplace_back(text.substr(match.begin, match.end - match.begin));
  return found;
}

TEST(OnigPattern, TranslatesTheLlama3Split) {
  const std::string_view pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_THAT(find_all(pattern, "I'LL see 12345 été,\n\n  ok  "),
              ElementsAre("I", "'LL", " see", " ", "123", "45", " été", ",\n\n", " ", " ok", "  "));
}

TEST(OnigPattern, MatchesUnicodeWhiteSpace) {
  EXPECT_THAT(find_all(R"(\s+)", "a\u0085\u00A0\u1680\u2028\u3000b"),
              ElementsAre("\u0085\u00A0\u1680\u2028\u3000"));
  EXPECT_THAT(find_all(R"(\s)", "\u180E\u200B\uFEFF"), IsEmpty());
  EXPECT_THAT(find_all(R"([^\S\n]+)", " \n\t"), ElementsAre(" ", "\t"));
  EXPECT_THAT(find_all(R"([\s\S]+)", " a\n"), ElementsAre(" a\n"));
}

TEST(OnigPattern, MatchesWordCharacters) {
  EXPECT_THAT(find_all(R"(\w+)", "aé_1 ते²-x"), ElementsAre("aé_1", "ते²", "x"));
  EXPECT_THAT(find_all(R"([\w]+)", "a²"),
              ElementsAre("a"));  // sets exclude superscripts, as in Oniguruma
  EXPECT_THAT(find_all(R"(\bfoo\b)", "foo xfoo foo"), ElementsAre("foo", "foo"));
  EXPECT_THAT(find_all(R"(\Bfoo)", "foo xfoo"), ElementsAre("foo"));
  EXPECT_THAT(find_all(R"(\W+)", "a, b"), ElementsAre(", "));
}

TEST(OnigPattern, AcceptsShortLongAndScriptNamesOfProperties) {
  EXPECT_THAT(find_all(R"(\p{Lu}\p{Lowercase_Letter}+)", "Abc DeF"), ElementsAre("Abc", "De"));
  EXPECT_THAT(find_all(R"(\p{Han}+)", "a中文、b"),
              ElementsAre("中文"));  // matches the script, not its extensions
  EXPECT_THAT(find_all(R"(\p{^L}+)", "a12b"), ElementsAre("12"));
  EXPECT_THAT(find_all(R"(\P{L}+)", "a12b"), ElementsAre("12"));
  EXPECT_THAT(find_all(R"([[:punct:]]+)", "a.+b"), ElementsAre(".+"));
  EXPECT_THAT(find_all(R"([[:^alpha:]]+)", "ab12"), ElementsAre("12"));
  EXPECT_THAT(find_all(R"(\p{S}+)", "a\U0001FAE8\U0001FA77b"),
              ElementsAre("\U0001FAE8\U0001FA77"));  // Unicode 15
}

TEST(OnigPattern, SupportsNestedAndIntersectedSets) {
  EXPECT_THAT(find_all("[a-c[x-z]]+", "abcxyzd"), ElementsAre("abcxyz"));
  EXPECT_THAT(find_all("[a-z&&[^aeiou]]+", "hello"), ElementsAre("h", "ll"));
  EXPECT_THAT(find_all("[^a-z&&[^aeiou]]+", "hello!"), ElementsAre("e", "o!"));
  EXPECT_THAT(find_all("[^a[bc]]+", "abcd\n"), ElementsAre("d\n"));
  EXPECT_THAT(find_all("[]a]+", "a]b"), ElementsAre("a]"));
  EXPECT_THAT(find_all("[+--]+", "+,-."), ElementsAre("+,-"));
  EXPECT_THAT(find_all("[a&b-]+", "a&-b"), ElementsAre("a&-b"));
}

TEST(OnigPattern, InterpretsQuantifiersLikeOniguruma) {
  EXPECT_THAT(find_all(R"(\p{N}{1,3}+)", "12345"), ElementsAre("12345"));  // repeated, not possessive
  EXPECT_THAT(find_all("a{2}?b", "aab b"), ElementsAre("aab", "b"));       // optional, not lazy
  EXPECT_THAT(find_all("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(find_all("a{1,2}{2}", "aaaa"), ElementsAre("aaaa"));
  EXPECT_THAT(find_all("a**b", "aab"), ElementsAre("aab"));
  EXPECT_THAT(find_all("a++b|a++", "aab aa"), ElementsAre("aab", "aa"));
  EXPECT_THAT(find_all("a{1,2}?", "aaa"), ElementsAre("a", "a", "a"));
  EXPECT_THAT(find_all("a{x}|{|}", "a{x}{}"), ElementsAre("a{x}", "{", "}"));
}

TEST(OnigPattern, InterpretsOptionsLikeOniguruma) {
  EXPECT_THAT(find_all("(?m:.+)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(find_all(".+", "a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(find_all("a(?i)b|c", "aB C"), ElementsAre("aB"));  // is a(?i:b|c)
  EXPECT_THAT(find_all("(?i:a)|B", "Ab B"), ElementsAre("A", "B"));
  EXPECT_THAT(find_all("^b|a$", "a\nb"), ElementsAre("a", "b"));
}

TEST(OnigPattern, InterpretsEscapesLikeOniguruma) {
  EXPECT_THAT(find_all(R"(\h+)", "xyz1f"), ElementsAre("1f"));
  EXPECT_THAT(find_all(R"(\v)", "\x0B\n"), ElementsAre("\x0B"));
  EXPECT_THAT(find_all(R"(\u4e2d\x61\x{62}\/)", "中ab/"), ElementsAre("中ab/"));
  EXPECT_THAT(find_all(R"(a(?#no)b(?<name>c))", "abc"), ElementsAre("abc"));
  EXPECT_THAT(find_all(R"(#é )", "#é "), ElementsAre("#é "));
}

TEST(OnigPattern, RejectsUnsupportedPatterns) {
  for (const char* pattern : {"(a)\\1",  "\\k<n>", "\\g<1>",      "(*FAIL)", "(?~a)",     "(?x)a",   "\\X",
                              "\\Qa\\E", "\\xe4",  "[",           "[a",      "[[:foo:]]", "(a",      "a)",
                              "*a",      "a{3,2}", "\\",          "\\p{",    "\\pL",      "\\p{1}",  "[a&&]",
                              "[z-a]",   "\\u12",  "\\x{110000}", "(?<n",    "(?",        "a{99999}"}) {
    try {
      onig_to_pcre2(pattern, "file: field");
      ADD_FAILURE() << "translated " << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr("file: field: regex \"")) << pattern;
    }
  }
  EXPECT_THROW(onig_to_pcre2(std::string(5000, '('), "test"), Error);
  EXPECT_THROW(onig_to_pcre2(std::string(5000, '['), "test"), Error);
}

TEST(Regex, FindsEmptyMatchesExceptAfterAMatch) {
  const auto places = [](std::string_view pattern, std::string_view text) {
    RegexScratch scratch;
    std::vector<Span> matches;
    Regex(pattern, "test").find_all(text, scratch, matches);
    std::vector<std::pair<size_t, size_t>> out;
    for (const Span& match : matches) out.emplace_back(match.begin, match.end);
    return out;
  };
  using Place = std::pair<size_t, size_t>;
  EXPECT_THAT(places("x*", "axb"), ElementsAre(Place(0, 0), Place(1, 2), Place(3, 3)));
  EXPECT_THAT(places("", "é"), ElementsAre(Place(0, 0), Place(2, 2)));
}

TEST(Regex, SupportsLookbehind) { EXPECT_THAT(find_all("(?<=a)b|a", "ab"), ElementsAre("a", "b")); }

TEST(Regex, MatchesBeyondTheJitStack) {
  const std::string text(200'000, 'a');
  EXPECT_THAT(find_all("(?:(?=[a-y])[b-z[a]])+", text), ElementsAre(text));
}

TEST(Regex, ReportsAnErrorOnCatastrophicBacktracking) {
  EXPECT_THROW(find_all("(?:a|a)+[bc]", std::string(100, 'a')), Error);
}

}  // namespace
}  // namespace attend::tokenizer
