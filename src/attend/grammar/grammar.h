// Grammar: constraint on the text of a completion.
#pragma once

#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

enum class GrammarKind {
  kJsonSchema,     // JSON that matches the schema; keys are in the schema's order
  kRegex,          // matches the complete text, with or without ^ and $
  kEbnf,           // GBNF, as in llama.cpp, SGLang and vLLM; starts at "root"
  kStructuralTag,  // xgrammar's structural tags: free text in which triggers start text that matches a schema
};

// Returns "json_schema", "regex", "ebnf" or "structural_tag".
std::string_view to_string(GrammarKind kind);

struct Grammar {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;

  bool operator==(const Grammar&) const = default;
};

// Grammar of any JSON object.
Grammar json_object_grammar();
// Grammar that matches one of these texts.
Grammar choice_grammar(std::span<const std::string> choices);

}  // namespace attend
#pragma GCC visibility pop
