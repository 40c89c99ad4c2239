// GrammarCompiler: compiles grammars to token masks, on its own threads and within a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/step/token_mask.h"
#include "attend/grammar/grammar.h"
#include "attend/grammar/grammar_library.h"
#include "attend/model/config/model_spec.h"
#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

// Vocabulary that grammars are compiled for.
struct GrammarVocabulary {
  std::optional<Tokenizer> tokenizer;
  int vocab_size = 0;             // width of the model's logits
  std::vector<int32_t> stop_ids;  // the model's end-of-sequence tokens

  // `tokenizer`: null if the model has none.
  static GrammarVocabulary of(const Tokenizer* tokenizer, const ModelSpec& model);
};

struct GrammarLimits {
  std::chrono::milliseconds compile_time{10'000};
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
// A grammar of a few lines may need minutes. If it exceeds the time limit, it is rejected. Its thread cannot
// be stopped, so it continues at the lowest priority and another thread replaces it, for up to
// kMaxAbandonedThreads threads. When it finishes, its grammar is cached for later requests.
class GrammarCompiler {
 public:
  static constexpr int kMaxAbandonedThreads = 8;

  // Without a library, or if the model has no tokenizer or no end-of-sequence token, every grammar is
  // rejected.
  GrammarCompiler(const GrammarLibrary& library, GrammarVocabulary vocabulary,
                  const GrammarLimits& limits = {});
  // Waits briefly for running compilations; pending callbacks receive an error.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls `done` once: on this thread if the grammar is cached, otherwise on one of the compiler's threads.
  // It must not throw. Errors: kInvalidArgument for a grammar that cannot be compiled, matches no text or
  // exceeds the time limit; kUnsupported if grammars are not available. May be called from any thread.
  using Callback = std::function<void(GrammarResult)>;
  void compile(Grammar grammar, Callback done);
  // Waits for the result. Throws on errors.
  std::shared_ptr<TokenMask> compile(const Grammar& grammar);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace attend
#pragma GCC visibility pop
