#include "attend/grammar/code_points.h"

#include <algorithm>
#include <utility>

namespace attend {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodePoints::Range kSurrogates{0xD800, 0xDFFF};

}  // namespace

CodePoints::CodePoints(std::vector<Range> ranges) : ranges_(std::move(ranges)) { normalize(); }

void CodePoints::add(Range range) {
  ranges_.push_back(range);
  normalize();
}

void CodePoints::add(const CodePoints& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

void CodePoints::normalize() {
  std::vector<Range> parts;
  for (const Range& range : ranges_) {
    if (range.first < kSurrogates.first)
      parts.push_back({range.first, std::min(range.last, char32_t{kSurrogates.first - 1})});
    if (range.last > kSurrogates.last)
      parts.push_back({std::max(range.first, char32_t{kSurrogates.last + 1}), range.last});
  }
  std::ranges::sort(parts, {}, &Range::first);
  ranges_.clear();
  for (const Range& part : parts) {
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    else
      ranges_.push_back(part);
  }
}

CodePoints CodePoints::complement() const {
  CodePoints result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.ranges_.push_back({next, kLast});
  result.normalize();
  return result;
}

CodePoints CodePoints::without(const CodePoints& other) const {
  CodePoints all = complement();
  all.add(other);
  return all.complement();
}

bool CodePoints::contains(char32_t code) const {
  return std::ranges::any_of(ranges_,
                             [&](const Range& range) { return range.first <= code && code <= range.last; });
}

}  // namespace attend
