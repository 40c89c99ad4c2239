// Reads the parts of an Oniguruma pattern that stand for one character: literals, escapes, properties and
// sets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attend::tokenizer {

// The pattern of one character, as PCRE2 writes it.
std::string onig_literal(char32_t code);

// One character, or a class of characters.
struct OnigItem {
  char32_t code = 0;
  std::string class_items;  // items of a PCRE2 set; a class when not empty
  bool negated = false;     // the class's complement

  // The PCRE2 expression that matches it outside of sets.
  std::string expression() const;
};

// A cursor over a pattern. Everything it can not read is refused with Error(kUnsupported).
class OnigReader {
 public:
  // Both outlive the reader. `where` begins the messages of errors.
  OnigReader(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  static constexpr int kMaxDepth = 100;  // of groups and sets

  [[noreturn]] void refuse(std::string_view what) const;

  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool consume(std::string_view text);
  // Reads one character.
  char32_t next();
  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }

  // Reads an escape that means the same inside and outside of sets; the backslash is read.
  OnigItem escape();
  // Reads a set up to its closing bracket; the opening one is read. Returns a PCRE2 expression.
  std::string set(int depth);

 private:
  // A union: what one bracket of PCRE2 can hold, and whole expressions for the rest.
  struct Union {
    std::string items;
    std::vector<std::string> expressions;
    void add(const OnigItem& item);
    std::string expression() const;
  };

  char32_t hex_character();
  char32_t hex_digits(int at_least, int at_most);
  OnigItem property(bool negated);
  void posix_class(Union& set);
  void set_range(Union& set);
  OnigItem set_item();

  std::string_view pattern_;
  std::string_view where_;
  size_t at_ = 0;
};

}  // namespace attend::tokenizer
