// Resolves the executor of a draft model, and checks that it can predict tokens of the target.
#pragma once

#include "attend/engine/engine.h"
#include "attend/engine/resolve/resolve_executor.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {

// Opens the draft model of `config` and chooses how the target's device runs it, with the target's page size.
// The target returns the hidden states that a draft head reads. `info`: limits of the target's steps.
// Allocates nothing. Throws the errors of open_checkpoint, fit_draft and resolve_executor;
// Error(kInvalidArgument) without a draft model, or for a head of another algorithm; Error(kUnsupported) for
// a model that makes no text, or with recurrent states.
ResolvedExecutor resolve_draft(const EngineConfig& config, const ModelSpec& target_spec,
                               const EngineInfo& info, ResolvedExecutor& target);

struct TargetVocabulary {
  const Tokenizer* tokenizer = nullptr;  // null: the target has none
  int vocab_size = 0;                    // of the model
};
// Throws Error(kInvalidArgument) unless the tokens of both tokenizers have the same ids. If one of the models
// has no tokenizer, the sizes of their vocabularies must be equal. Otherwise these may differ by padding.
void check_draft_vocabulary(const EngineConfig& config, const TargetVocabulary& target,
                            const ModelSpec& draft_spec);

}  // namespace attend
