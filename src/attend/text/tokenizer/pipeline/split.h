// Cutting a text at matches: what becomes of the matched parts (the delimiters).
#pragma once

#include <cstddef>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

// "the-final--countdown" at "-":
enum class SplitBehavior {
  kRemoved,             // the | final | countdown
  kIsolated,            // the | - | final | - | - | countdown
  kMergedWithPrevious,  // the- | final- | - | countdown
  kMergedWithNext,      // the | -final | - | -countdown
  kContiguous,          // the | - | final | -- | countdown
};

// "Removed", "Isolated", ...; Error(kCorruptFile) for another name.
SplitBehavior split_behavior(const JsonNode& node);

// Appends the pieces of a text of `text_bytes` bytes that is cut at `matches` (ordered, not overlapping).
// With `invert`, what lies between the matches counts as matched and the matches do not. Empty pieces are
// left out.
void split(size_t text_bytes, const std::vector<Span>& matches, bool invert, SplitBehavior behavior,
           std::vector<Span>& pieces);

}  // namespace attend::tokenizer
