// Token sampling on the CPU. Arguments are those checked by kernels/sampling/sampling.h. Does not allocate
// memory.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/sampling/edit_logits.h"
#include "attend/kernels/sampling/logprobs.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cpu {

void argmax(const TensorView& logits, View<int32_t> ids, Isa isa);
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Isa isa);
void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& out, Isa isa);

// Logit edits and log-probabilities on the CPU. The functions of edit_logits.h and logprobs.h check arguments
// and call these.

void edit_logits(const TensorView& logits, const LogitEdits& edits);
void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Isa isa);
void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs);

}  // namespace attend::kernels::cpu
