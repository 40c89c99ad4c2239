// A grammar of what comes behind a model's thoughts.
#pragma once

#include <memory>

#include "attend/engine/step/token_mask.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

// Every token may come until </think> has; from there on those that `mask` allows. `inside`: the prompt
// opened <think>; otherwise the model may open it, or begin with what the grammar says.
std::shared_ptr<TokenMask> make_reasoning_mask(std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                                               bool inside);

}  // namespace attend::serve
