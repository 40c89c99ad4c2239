// What tokenizer.json calls a pattern: {"String": "..."} or {"Regex": "..."}.
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
  // Error(kCorruptFile) for another shape, Error(kUnsupported) for a regex that can not be compiled.
  explicit Pattern(const JsonNode& node);

  // Appends the non-overlapping matches in `text`, from left to right. The empty text has none.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<Span>& matches) const;

  // The text to find, when the pattern is one that is not empty.
  const std::optional<std::string>& literal() const { return literal_; }

 private:
  std::optional<std::string> literal_;
  std::optional<Regex> regex_;
};

// Appends the non-overlapping places of `needle`, which is not empty, from left to right.
void find_literal(std::string_view text, std::string_view needle, std::vector<Span>& matches);

// Bytes of `text` with every match replaced by `content`.
size_t replaced_bytes(std::string_view text, const std::vector<Span>& matches, std::string_view content);

// Appends `text` to `out` with every match replaced by `content`.
void replace_matches(std::string_view text, const std::vector<Span>& matches, std::string_view content,
                     std::string& out);

}  // namespace attend::tokenizer
