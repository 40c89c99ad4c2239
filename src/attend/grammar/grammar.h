// Grammar: what a completion's text may look like.
#pragma once

#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

enum class GrammarKind {
  kJsonSchema,     // JSON that the schema describes; keys come in the schema's order
  kRegex,          // the whole text, whether or not ^ and $ stand around it
  kEbnf,           // GBNF, as llama.cpp, SGLang and vLLM have it; begins at "root"
  kStructuralTag,  // xgrammar's structural tags: free text, in which triggers begin what a schema describes
};

// "json_schema", "regex", "ebnf", "structural_tag"
std::string_view to_string(GrammarKind kind);

struct Grammar {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;

  bool operator==(const Grammar&) const = default;
};

// Any JSON object.
Grammar json_object_grammar();
// One of these texts.
Grammar choice_grammar(std::span<const std::string> choices);

}  // namespace attend
#pragma GCC visibility pop
