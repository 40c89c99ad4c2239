// Splitting of a text at matches, with a choice of what happens to the matched parts (delimiters).
#pragma once

#include <cstddef>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

// Example: "the-final--countdown" split at "-".
enum class SplitBehavior {
  kRemoved,             // the | final | countdown
  kIsolated,            // the | - | final | - | - | countdown
  kMergedWithPrevious,  // the- | final- | - | countdown
  kMergedWithNext,      // the | -final | - | -countdown
  kContiguous,          // the | - | final | -- | countdown
};

// Parses "Removed", "Isolated", ... Throws Error(kCorruptFile) for another name.
SplitBehavior split_behavior(const JsonNode& node);

// Appends the pieces of a text of `text_bytes` bytes that is split at `matches` (ordered, not overlapping).
// With `invert`, the parts between the matches are the delimiters. Empty pieces are dropped.
void split(size_t text_bytes, const std::vector<Span>& matches, bool invert, SplitBehavior behavior,
           std::vector<Span>& pieces);

}  // namespace attend::tokenizer
