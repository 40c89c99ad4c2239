// Pattern of tokenizer.json: {"String": "..."} or {"Regex": "..."}.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

class Pattern {
 public:
  // Throws Error(kCorruptFile) for another form, Error(kUnsupported) for a regex that cannot be compiled.
  explicit Pattern(const JsonNode& node);

  // Appends the non-overlapping matches in `text`, from left to right. An empty `text` has no matches.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<Span>& matches) const;

  // Returns the text to find if the pattern is a non-empty literal.
  const std::optional<std::string>& literal() const { return literal_; }

 private:
  std::optional<std::string> literal_;
  std::optional<Regex> regex_;
};

// Appends the non-overlapping occurrences of `needle` (not empty), from left to right.
void find_literal(std::string_view text, std::string_view needle, std::vector<Span>& matches);

// Returns the size of `text` after replacing every match by `content`.
size_t replaced_bytes(std::string_view text, const std::vector<Span>& matches, std::string_view content);

// Appends `text` to `out` with every match replaced by `content`.
void replace_matches(std::string_view text, const std::vector<Span>& matches, std::string_view content,
                     std::string& out);

}  // namespace attend::tokenizer
