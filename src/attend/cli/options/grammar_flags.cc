#include "attend/cli/options/grammar_flags.h"

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/flags.h"

namespace attend::cli {
namespace {

// A text that starts with { is a schema and not a path.
bool is_inline(const std::string& schema) {
  const size_t first = schema.find_first_not_of(" \t\r\n");
  return first != schema.npos && schema[first] == '{';
}

}  // namespace

void add_grammar_library_options(CLI::App& app, GrammarFlags& flags) {
  set_group(app, "Structured output");
  add_text(app, "--grammar-library-path", flags.library_path,
           "folder with the packages xgrammar and apache-tvm-ffi, for schemas and grammars; default: "
           "ATTEND_GRAMMAR_LIBRARY_PATH, otherwise the loader's search path");
  add_number(app, "--grammar-timeout", flags.timeout, "time limit of compiling a grammar in seconds",
             Range<double>{.lowest = 0.001, .highest = 3600});
  add_number(app, "--grammar-mask-timeout", flags.mask_timeout,
             "time limit of computing the token mask of one token in seconds",
             Range<double>{.lowest = 0.001, .highest = 3600});
  add_number(app, "--grammar-memory-mb", flags.memory_mb,
             "maximum memory of a grammar and its token masks in MiB",
             Range<int>{.lowest = 16, .highest = 1 << 20});
  add_number(
      app, "--grammar-total-memory-mb", flags.total_memory_mb,
      "maximum memory of all grammars in MiB; requests with further grammars wait; default: half of the "
      "available memory",
      Range<int>{.lowest = 16, .highest = 1 << 30});
}

void add_grammar_options(CLI::App& app, GrammarFlags& flags) {
  set_group(app, "Structured output");
  add_text(app, "--json-schema", flags.json_schema,
           "JSON schema that completions must match: a file, or the schema itself, which starts with {");
  add_text(app, "--regex", flags.regex, "regular expression that completions must match");
  add_text(app, "--ebnf", flags.ebnf_file, "file with a GBNF grammar that completions must match");
  add_grammar_library_options(app, flags);
}

GrammarLimits to_limits(const GrammarFlags& flags) {
  GrammarLimits limits;
  limits.compile_time = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout * 1000));
  limits.mask_time = std::chrono::milliseconds(static_cast<int64_t>(flags.mask_timeout * 1000));
  require(flags.total_memory_mb == 0 || flags.total_memory_mb >= flags.memory_mb,
          "--grammar-total-memory-mb ", flags.total_memory_mb, ": at least --grammar-memory-mb, ",
          flags.memory_mb);
  limits.memory_bytes = static_cast<size_t>(flags.memory_mb) << 20;
  limits.total_memory_bytes = static_cast<size_t>(flags.total_memory_mb) << 20;
  return limits;
}

std::optional<ChosenGrammar> ChosenGrammar::make(const GrammarFlags& flags) {
  const GrammarLimits limits = to_limits(flags);
  const int num = !flags.json_schema.empty() + !flags.regex.empty() + !flags.ebnf_file.empty();
  require(num <= 1, "--json-schema, --regex and --ebnf: expected one of them");
  if (num == 0) return std::nullopt;
  ChosenGrammar chosen;
  if (!flags.regex.empty())
    chosen.grammar_ = {GrammarKind::kRegex, flags.regex};
  else if (!flags.json_schema.empty())
    chosen.grammar_ = {GrammarKind::kJsonSchema, is_inline(flags.json_schema)
                                                     ? flags.json_schema
                                                     : read_file(flags.json_schema, limits.grammar_bytes)};
  else
    chosen.grammar_ = {GrammarKind::kEbnf, read_file(flags.ebnf_file, limits.grammar_bytes)};
  chosen.options_ = {.library = GrammarLibrary::load(flags.library_path), .limits = limits};
  if (!chosen.options_.library.available()) fail(ErrorCode::kUnsupported, GrammarLibrary::install_hint());
  return chosen;
}

std::shared_ptr<TokenMask> ChosenGrammar::compile(const Engine& engine) {
  compiler_ = std::make_shared<GrammarCompiler>(
      options_.library, GrammarVocabulary::make(engine.tokenizer(), engine.model_spec()), options_.limits);
  return compiler_->compile(grammar_);
}

}  // namespace attend::cli
