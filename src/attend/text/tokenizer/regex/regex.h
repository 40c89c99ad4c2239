// Regular expressions over valid UTF-8, run by PCRE2 (Unicode properties; JIT where available).
//
// tokenizer.json contains patterns for Oniguruma, the engine of the `tokenizers` library; onig_pattern.h
// translates them. Matching is const and thread-safe; each thread uses its own RegexScratch.
//
// PCRE2 10.42 (Debian 12) supports Unicode 14: characters of later versions are unassigned here.
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
  // Compiles a pattern in PCRE2's syntax. `where`: prefix of the message of the Error(kUnsupported) for a
  // pattern that PCRE2 rejects.
  Regex(std::string_view pcre2_pattern, std::string_view where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Appends the non-overlapping matches in `text` from left to right. An empty match counts unless it is at
  // the end of the previous match. Throws Error(kUnsupported) if the match exceeds PCRE2's backtracking
  // limits.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<Span>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend::tokenizer
