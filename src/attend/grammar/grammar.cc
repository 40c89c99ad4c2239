#include "attend/grammar/grammar_compiler.h"

namespace attend {

std::string_view to_string(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return "json_schema";
    case GrammarKind::kRegex:
      return "regex";
    case GrammarKind::kEbnf:
      return "ebnf";
    case GrammarKind::kStructuralTag:
      return "structural_tag";
  }
  return "";
}

Grammar json_object_grammar() { return {GrammarKind::kJsonSchema, R"({"type":"object"})"}; }

Grammar choice_grammar(std::span<const std::string> choices) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string rule = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    rule += i == 0 ? "\"" : " | \"";
    for (const char c : choices[i]) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        rule += '\\';
        rule += c;
      } else if (byte < 0x20 || byte == 0x7f) {
        rule += "\\x";
        rule += kDigits[byte >> 4];
        rule += kDigits[byte & 15];
      } else {
        rule += c;
      }
    }
    rule += '"';
  }
  return {GrammarKind::kEbnf, rule};
}

}  // namespace attend
