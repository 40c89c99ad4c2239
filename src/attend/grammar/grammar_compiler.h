// Grammar: restriction of a completion's text. GrammarLibrary: the library that compiles grammars.
// GrammarCompiler: compiles grammars to token masks, on its own threads and within a time limit.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/generation_request.h"
#include "attend/model/config/model_spec.h"
#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

// Grammar: constraint on the text of a completion.
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

namespace xgrammar {
struct Library;
}

// Libraries that compile grammars, where they are installed.
//
// Grammars need xgrammar 0.2.8 and apache-tvm-ffi 0.1.15, two packages of the Python package index that
// contain these libraries. They are loaded at run time and needed only for grammars. Python itself is not
// needed.
class GrammarLibrary {
 public:
  // `folder`: Python's site-packages folder with the packages xgrammar and tvm_ffi, or a folder with their
  // two libraries. Throws Error(kNotFound) if they are missing, and Error(kUnsupported) for other versions.
  // If empty, the environment variable ATTEND_GRAMMAR_LIBRARY_PATH is used, otherwise the loader's search
  // path; if nothing is found there, grammars are not available.
  static GrammarLibrary load(const std::filesystem::path& folder = {});

  // Like load(), but errors mean that grammars are not available.
  static GrammarLibrary find(const std::filesystem::path& folder);

  // Null if grammars are not available.
  const std::shared_ptr<const xgrammar::Library>& xgrammar() const { return xgrammar_; }
  bool available() const { return xgrammar_ != nullptr; }
  // Error message for requests with grammars: the packages to install, and the problem of those found.
  std::string rejection() const;
  // First part of the message.
  static std::string install_hint();

 private:
  std::shared_ptr<const xgrammar::Library> xgrammar_;
  std::string problem_;
};

// Vocabulary that grammars are compiled for.
struct GrammarVocabulary {
  std::optional<Tokenizer> tokenizer;
  int vocab_size = 0;             // width of the model's logits
  std::vector<int32_t> stop_ids;  // the model's end-of-sequence tokens

  // `tokenizer`: null if the model has none.
  static GrammarVocabulary make(const Tokenizer* tokenizer, const ModelSpec& model);
};

struct GrammarLimits {
  std::chrono::milliseconds compile_time{10'000};
  std::chrono::milliseconds mask_time{2'000};  // of one token's mask
  size_t memory_bytes = size_t{512} << 20;     // of one grammar and its masks
  // Limit for all grammars together; further grammars wait. 0: half of the memory available at start.
  size_t total_memory_bytes = 0;
  size_t grammar_bytes = size_t{1} << 20;  // limit of a grammar's text
  size_t cache_bytes = size_t{256} << 20;  // limit of cached compiled grammars
};

struct GrammarOptions {
  GrammarLibrary library;
  GrammarLimits limits;
};

// Result of a compilation: a mask or an error.
struct GrammarResult {
  std::shared_ptr<TokenMask> mask;
  std::optional<Error> error;
};

// Each grammar is compiled once; the most recently used ones are cached.
//
// A grammar of a few lines may need minutes or gigabytes, to be compiled or for the mask of one token. Each
// grammar is therefore compiled in a process of its own, which computes its masks too. A process that exceeds
// a limit is killed: its memory is freed, and requests with this grammar end with an error. Others continue.
class GrammarCompiler {
 public:
  static constexpr int kMaxProcesses = 256;  // grammars that are compiled, in use or cached
  static constexpr int kMaxCompiling = 8;
  // Further grammars wait, within their time limit. Together, processes may need at most
  // GrammarLimits::total_memory_bytes: each counts with its limit while it compiles, afterwards with the
  // memory that it has and an eighth of its limit for masks, which then limits it.

  // Without a library, or if the model has no tokenizer or no end-of-sequence token, every grammar is
  // rejected.
  GrammarCompiler(const GrammarLibrary& library, GrammarVocabulary vocabulary,
                  const GrammarLimits& limits = {});
  // Ends the processes; pending callbacks and masks receive an error.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls `done` once: on this thread if the grammar is cached, otherwise on the compiler's thread, which
  // waits for it. It must not throw. Errors: kInvalidArgument for a grammar that cannot be compiled, matches
  // no text or exceeds a limit; kOutOfMemory if it had to wait too long; kUnsupported if grammars are not
  // available. May be called from any thread.
  using Callback = std::function<void(GrammarResult)>;
  void compile(Grammar grammar, Callback done);
  // Waits for the result. Throws on errors.
  std::shared_ptr<TokenMask> compile(const Grammar& grammar);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace attend
#pragma GCC visibility pop
