// Regular expressions over valid UTF-8, run by PCRE2 (Unicode properties, JIT when the machine has it).
//
// tokenizer.json holds patterns for Oniguruma, the engine of the `tokenizers` library; onig_pattern.h
// translates them. Matching is const and thread-safe; what one thread needs while matching lives in its
// RegexScratch.
//
// PCRE2 10.42 (Debian 12) knows Unicode 14: characters that later versions added are unassigned here.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace attend::tokenizer {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Regex {
 public:
  // Compiles a pattern in PCRE2's syntax. `where` begins the message of the Error(kUnsupported) that a
  // pattern gets which PCRE2 can not compile.
  Regex(std::string_view pcre2_pattern, std::string_view where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Appends the non-overlapping matches in `text` from left to right. An empty match counts unless it touches
  // the end of the match before it. Throws Error(kUnsupported) where the pattern backtracks beyond PCRE2's
  // limits.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<Span>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend::tokenizer
