// Embedding and LM head, with weights of one row per token of the vocabulary: from token ids to the residual
// stream, and from the residual stream to logits.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels {

struct EmbedArgs {
  View<const int32_t> ids;  // [num_tokens]
  Weight table;             // [vocab_size, hidden_size], plain, or on CPUs also blocks
  float scale = 1.0f;
  TensorView out;  // [num_tokens, hidden_size]: Residual::sum() of a new step
};
// out = scale * table[ids]. Throws as embedding() does. Each rank has the whole table.
void embed(const EmbedArgs& args, const OpContext& context);

struct HeadArgs {
  Norm norm;
  Linear linear;                  // [vocab_size, hidden_size]; of several ranks: the rank's rows
  View<const int32_t> rows = {};  // [num_rows] tokens; empty: all of them
  float logit_cap = 0.0f;         // 0: none
  // Several ranks: rows of the head that each rank has (RankRanges::bounds). Empty: each rank has all.
  View<const int64_t> bounds = {};
  TensorView out;  // f32 [num_rows, vocab_size]
};
// out = W norm(residual) + b of these tokens, then cap * tanh(out / cap). Throws as norm_linear() and
// soft_cap() do. Each rank computes the logits of its rows and gathers the others.
void head(Residual& residual, const HeadArgs& args, const OpContext& context);

}  // namespace attend::kernels
