// Grammars: what a completion's text may look like, the library that compiles them, and GrammarCompiler,
// which makes token masks of them on threads of its own and within a time limit.
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

// Grammar: what a completion's text may look like.
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

namespace xgrammar {
struct Library;
}

// Libraries that compile grammars, where they are installed.
//
// attend loads them at run time and needs none of them otherwise: xgrammar 0.2.8 and apache-tvm-ffi 0.1.15,
// both of the Python package index, for the sake of the libraries in them. Python itself is not needed.
class GrammarLibrary {
 public:
  // `folder`: a site-packages folder of Python with the packages xgrammar and tvm_ffi, or any folder with
  // their two libraries. Throws Error(kNotFound) where they are not, and Error(kUnsupported) for other
  // versions. Empty: ATTEND_GRAMMAR_LIBRARY_PATH of the environment stands for it; without that, wherever the
  // loader looks, and if they are nowhere, there are no grammars.
  static GrammarLibrary load(const std::filesystem::path& folder = {});

  // As load(), but what is wrong with the folder means that there are none.
  static GrammarLibrary find(const std::filesystem::path& folder);

  // Null: there are no grammars.
  const std::shared_ptr<const xgrammar::Library>& xgrammar() const { return xgrammar_; }
  bool available() const { return xgrammar_ != nullptr; }
  // What to say to who wants one all the same: which packages to install, and what was wrong with those
  // found.
  std::string rejection() const;
  // The first half of it.
  static std::string advice();

 private:
  std::shared_ptr<const xgrammar::Library> xgrammar_;
  std::string problem_;
};

// The vocabulary that grammars are compiled over.
struct GrammarVocabulary {
  std::optional<Tokenizer> tokenizer;
  int vocab_size = 0;             // of the model's logits
  std::vector<int32_t> stop_ids;  // the model's end-of-sequence tokens

  // `tokenizer`: null where the model has none.
  static GrammarVocabulary of(const Tokenizer* tokenizer, const ModelSpec& model);
};

struct GrammarLimits {
  std::chrono::milliseconds compile_time{10'000};
  size_t grammar_bytes = size_t{1} << 20;  // of a grammar's text
  size_t cache_bytes = size_t{256} << 20;  // of compiled grammars that are kept
};

struct GrammarOptions {
  GrammarLibrary library;
  GrammarLimits limits;
};

// How a grammar ended: with a mask, or with what is wrong.
struct GrammarResult {
  std::shared_ptr<TokenMask> mask;
  std::optional<Error> error;
};

// Grammars are compiled once: those that were used last are kept.
//
// A grammar of a few lines may take minutes. One that is not compiled within the time limit is refused, while
// its thread, which nothing can stop, goes on at the lowest priority, and another takes its place; up to
// kMaxAbandonedThreads of them. If it ends after all, the grammar is there for who asks again.
class GrammarCompiler {
 public:
  static constexpr int kMaxAbandonedThreads = 8;

  // Without a library, or where the model has no tokenizer or no end-of-sequence token, it refuses every
  // grammar.
  GrammarCompiler(const GrammarLibrary& library, GrammarVocabulary vocabulary,
                  const GrammarLimits& limits = {});
  // Waits a moment for what is being compiled; who waits for it is told.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls `done` once: in this thread where the grammar is known, otherwise in one of the compiler's. It must
  // not throw. Errors: kInvalidArgument for a grammar that can not be compiled, has no text or takes too
  // long; kUnsupported where there are no grammars. On any thread.
  using Callback = std::function<void(GrammarResult)>;
  void compile(Grammar grammar, Callback done);
  // Waits, and throws the error.
  std::shared_ptr<TokenMask> compile(const Grammar& grammar);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace attend
#pragma GCC visibility pop
