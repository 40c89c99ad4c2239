// GrammarCompiler: grammars to token masks, on threads of its own and within a time limit.
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
