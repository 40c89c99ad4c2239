#include "attend/text/tokenizer/pipeline/split.h"

#include <algorithm>
#include <utility>

namespace attend::tokenizer {
namespace {

struct Part {
  Span span;
  bool matched;
};

// Returns the complete text as alternating parts, matched and unmatched.
std::vector<Part> cover(size_t text_bytes, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t at = 0;
  for (const Span& match : matches) {
    if (at != match.begin) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at != text_bytes) parts.push_back({{at, text_bytes}, invert});
  return parts;
}

// Joins a part to the previous one (in the order of `parts`) if `joins` returns true.
template <class Joins>
std::vector<Span> fold(const std::vector<Part>& parts, Joins joins) {
  std::vector<Span> folded;
  bool previous_matched = false;
  for (const Part& part : parts) {
    if (!folded.empty() && joins(part.matched, previous_matched)) {
      folded.back().begin = std::min(folded.back().begin, part.span.begin);
      folded.back().end = std::max(folded.back().end, part.span.end);
    } else {
      folded.push_back(part.span);
    }
    previous_matched = part.matched;
  }
  return folded;
}

}  // namespace

SplitBehavior split_behavior(const JsonNode& node) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  for (const auto& [name, behavior] : kNames) {
    if (node.string() == name) return behavior;
  }
  node.corrupt("behavior \"", node.string(),
               "\" is none of Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
}

void split(size_t text_bytes, const std::vector<Span>& matches, bool invert, SplitBehavior behavior,
           std::vector<Span>& pieces) {
  const auto keep = [&](const Span& span) {
    if (span.begin != span.end) pieces.push_back(span);
  };
  std::vector<Part> parts = cover(text_bytes, matches, invert);
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.matched) keep(part.span);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) keep(part.span);
      return;
    case SplitBehavior::kContiguous:
      for (const Span& span : fold(parts, [](bool matched, bool previous) { return matched == previous; }))
        keep(span);
      return;
    case SplitBehavior::kMergedWithPrevious:
      for (const Span& span : fold(parts, [](bool matched, bool previous) { return matched && !previous; }))
        keep(span);
      return;
    case SplitBehavior::kMergedWithNext: {
      std::reverse(parts.begin(), parts.end());
      std::vector<Span> folded =
          fold(parts, [](bool matched, bool previous) { return matched && !previous; });
      std::reverse(folded.begin(), folded.end());
      for (const Span& span : folded) keep(span);
      return;
    }
  }
}

}  // namespace attend::tokenizer
