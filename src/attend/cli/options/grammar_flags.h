// The flags that say what a completion's text may look like.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "attend/engine/engine.h"
#include "attend/grammar/grammar_compiler.h"

namespace attend::cli {

struct GrammarFlags {
  std::string json_schema_file, regex, ebnf_file;
  std::string library_path;
  double timeout = 10.0;
};

// --grammar-library-path and --grammar-timeout.
void add_grammar_library_options(CLI::App& app, GrammarFlags& flags);
// Those, and what names one grammar for all prompts.
void add_grammar_options(CLI::App& app, GrammarFlags& flags);

GrammarLimits to_limits(const GrammarFlags& flags);

// The grammar of the flags, ready to be compiled; the file is read, and the library loaded. Nothing, if there
// is none. Throws Error for two grammars, and for a file or a library that is not there.
class ChosenGrammar {
 public:
  static std::optional<ChosenGrammar> of(const GrammarFlags& flags);
  // Over the engine's vocabulary. Throws as GrammarCompiler::compile.
  std::shared_ptr<TokenMask> compile(const Engine& engine) const;

 private:
  Grammar grammar_;
  GrammarOptions options_;
};

}  // namespace attend::cli
