// Reads the parts of an Oniguruma pattern that match one character: literals, escapes, properties and sets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attend::tokenizer {

// Returns the pattern of one character in PCRE2's syntax.
std::string onig_literal(char32_t code);

// Character or character class.
struct OnigItem {
  char32_t code = 0;
  std::string class_items;  // items of a PCRE2 set; a class if not empty
  bool negated = false;     // complement of the class

  // Returns the PCRE2 expression that matches it outside of sets.
  std::string expression() const;
};

// Cursor over a pattern. Throws Error(kUnsupported) for text that it cannot read.
class OnigReader {
 public:
  // Both arguments outlive the reader. `where`: prefix of error messages.
  OnigReader(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  static constexpr int kMaxDepth = 100;  // nesting of groups and sets

  [[noreturn]] void reject(std::string_view what) const;

  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool consume(std::string_view text);
  // Reads one character.
  char32_t next();
  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }

  // Reads an escape with the same meaning inside and outside of sets, after its backslash.
  OnigItem escape();
  // Reads a set after its opening bracket, up to its closing one. Returns a PCRE2 expression.
  std::string set(int depth);

 private:
  // Union of items that one PCRE2 bracket can contain, and of complete expressions for the rest.
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
