// CodePoints: a set of Unicode characters, as classes of regular expressions denote them.
#pragma once

#include <initializer_list>
#include <vector>

namespace attend {

class CodePoints {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges) : CodePoints(std::vector<Range>(ranges)) {}
  explicit CodePoints(std::vector<Range> ranges);

  void add(Range range);
  void add(const CodePoints& other);
  // Returns all characters that are not in the set. Surrogates are not characters.
  CodePoints complement() const;
  CodePoints without(const CodePoints& other) const;
  bool contains(char32_t code) const;
  bool empty() const { return ranges_.empty(); }
  // Ranges in order, without surrogates, disjoint and not adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void normalize();

  std::vector<Range> ranges_;
};

}  // namespace attend
