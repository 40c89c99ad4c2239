#include "attend/text/tokenizer/regex/onig_pattern.h"

#include <cstdint>

#include "attend/text/tokenizer/regex/onig_property.h"
#include "attend/text/tokenizer/regex/onig_reader.h"

namespace attend::tokenizer {
namespace {

constexpr uint32_t kMaxRepeat = 65535;  // PCRE2's limit

std::string word_boundary(std::string_view after_word, std::string_view after_other) {
  const std::string word = OnigItem{0, std::string(kWordItems), false}.expression();
  std::string out = "(?:(?<=" + word + ")";
  out += after_word;
  out += word + ")|(?<!" + word + ")";
  out += after_other;
  out += word + "))";
  return out;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : reader_(pattern, where) {}

  std::string run() {
    alternatives(0);
    if (!reader_.at_end()) reader_.reject("unmatched )");
    return std::move(out_);
  }

 private:
  // Reads up to the end of the enclosing group, which the caller reads.
  void alternatives(int depth) {
    if (depth > OnigReader::kMaxDepth) reader_.reject("nested too deeply");
    while (!reader_.at_end() && !reader_.next_is(")")) {
      if (reader_.consume("|")) {
        out_ += '|';
      } else {
        const size_t atom = out_.size();
        if (parse_atom(depth)) quantifiers(atom);
      }
    }
  }

  // Appends one atom. Returns false if it cannot be repeated.
  bool parse_atom(int depth) {
    for (const std::string_view quantifier : {"*", "+", "?"}) {
      if (reader_.next_is(quantifier)) reader_.reject("nothing to repeat");
    }
    if (reader_.consume("(")) return group(depth);
    if (reader_.consume("[")) {
      out_ += reader_.set(depth);
    } else if (reader_.consume("\\")) {
      escape();
    } else {
      const char32_t c = reader_.next();
      if (c == '.' || c == '^' || c == '$') {
        out_ += static_cast<char>(c);
      } else {
        out_ += onig_literal(c);
      }
    }
    return true;
  }

  // Reads a group after its opening parenthesis.
  bool group(int depth) {
    if (reader_.next_is("*")) reader_.reject("callouts are not supported");
    if (!reader_.consume("?")) {
      out_ += "(?:";
    } else if (reader_.consume("#")) {
      while (reader_.next() != ')') {
      }
      return false;
    } else {
      out_ += "(?";
      if (!group_kind() && options()) {
        // Options without a colon apply to the end of the enclosing group, across its alternatives.
        alternatives(depth + 1);
        out_ += ')';
        return false;
      }
    }
    alternatives(depth + 1);
    if (!reader_.consume(")")) reader_.reject("missing )");
    out_ += ')';
    return true;
  }

  bool group_kind() {
    for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"}) {
      if (!reader_.consume(kind)) continue;
      out_ += kind;
      return true;
    }
    if (!reader_.consume("<")) return false;
    // The name matters only to back-references, which are rejected.
    while (reader_.next() != '>') {
    }
    out_ += ':';
    return true;
  }

  // Translates "im-im:" or "im-im)". Returns true for the latter.
  bool options() {
    bool minus = false;
    for (;;) {
      const char32_t c = reader_.next();
      if (c == 'i') {
        out_ += 'i';
      } else if (c == 'm') {
        out_ += 's';  // Oniguruma's "m" makes the dot match a newline
      } else if (c == '-' && !minus) {
        minus = true;
        out_ += '-';
      } else if (c == ':' || c == ')') {
        out_ += ':';
        return c == ')';
      } else {
        reader_.reject("this kind of group is not supported");
      }
    }
  }

  // Appends the quantifiers that follow the atom at out_[atom].
  void quantifiers(size_t atom) {
    for (bool repeated = false;; repeated = true) {
      std::string quantifier;
      bool fixed = false;
      bool braces = false;
      if (reader_.next_is("*") || reader_.next_is("+") || reader_.next_is("?")) {
        quantifier = static_cast<char>(reader_.next());
      } else if (reader_.next_is("{") && interval(quantifier, fixed)) {
        braces = true;
      } else {
        return;
      }
      if (repeated) wrap(atom);
      out_ += quantifier;
      if (fixed && reader_.consume("?")) {  // a{2}? is an optional a{2}, not a lazy one
        wrap(atom);
        out_ += '?';
      } else if (reader_.consume("?")) {
        out_ += '?';
      } else if (!braces && reader_.consume("+")) {  // a{1,2}+ is a repeated a{1,2}, not a possessive one
        out_ += '+';
      }
    }
  }

  void wrap(size_t atom) {
    out_.insert(atom, "(?:");
    out_ += ')';
  }

  // Reads {n}, {n,}, {n,m} or {,m}; any other text that begins with a brace is literal.
  bool interval(std::string& quantifier, bool& fixed) {
    const size_t start = reader_.position();
    reader_.consume("{");
    uint32_t low = 0;
    uint32_t high = 0;
    const bool has_low = number(low);
    const bool comma = reader_.consume(",");
    const bool has_high = comma && number(high);
    if (!reader_.consume("}") || !(has_low || has_high)) {
      reader_.rewind(start);
      return false;
    }
    if (has_high && high < low) reader_.reject("the interval is upside down");
    fixed = !comma;
    quantifier = '{';
    quantifier += std::to_string(low);
    if (comma) quantifier += ',';
    if (has_high) quantifier += std::to_string(high);
    quantifier += '}';
    return true;
  }

  bool number(uint32_t& value) {
    bool any = false;
    for (; !reader_.at_end(); any = true) {
      const size_t start = reader_.position();
      const char32_t c = reader_.next();
      if (c < '0' || c > '9') {
        reader_.rewind(start);
        break;
      }
      value = value * 10 + (c - '0');
      if (value > kMaxRepeat) reader_.reject("repeats too often");
    }
    return any;
  }

  // Reads an escape outside of sets, after its backslash.
  void escape() {
    if (reader_.consume("b")) {
      out_ += word_boundary("(?!", "(?=");
    } else if (reader_.consume("B")) {
      out_ += word_boundary("(?=", "(?!");
    } else if (reader_.consume("O")) {
      out_ += "(?s:.)";
    } else {
      for (const std::string_view same : {"A", "z", "Z", "G", "R", "N", "K"}) {
        if (!reader_.consume(same)) continue;
        out_ += '\\';
        out_ += same;
        return;
      }
      out_ += reader_.escape().expression();
    }
  }

  OnigReader reader_;
  std::string out_;
};

}  // namespace

std::string onig_to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace attend::tokenizer
