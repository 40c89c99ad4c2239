// Flags that constrain the text of completions.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "attend/engine/engine.h"
#include "attend/grammar/grammar_compiler.h"

namespace attend::cli {

struct GrammarFlags {
  std::string json_schema, regex, ebnf_file;
  std::string library_path;
  double timeout = 10.0, mask_timeout = 2.0;
  int memory_mb = 512, total_memory_mb = 0;
};

// Adds --grammar-library-path and the limits of grammars.
void add_grammar_library_options(CLI::App& app, GrammarFlags& flags);
// Adds those flags and the flags with one grammar for all prompts.
void add_grammar_options(CLI::App& app, GrammarFlags& flags);

GrammarLimits to_limits(const GrammarFlags& flags);

// Grammar of the flags, ready to be compiled: its file has been read and the library loaded. Empty without a
// grammar. Throws Error for two grammars, and for a missing file or library.
class ChosenGrammar {
 public:
  static std::optional<ChosenGrammar> make(const GrammarFlags& flags);
  // Compiles for the engine's vocabulary. The mask is valid while this object exists, since the compiler's
  // threads compute it. Throws the errors of GrammarCompiler::compile.
  std::shared_ptr<TokenMask> compile(const Engine& engine);

 private:
  Grammar grammar_;
  GrammarOptions options_;
  std::shared_ptr<GrammarCompiler> compiler_;
};

}  // namespace attend::cli
