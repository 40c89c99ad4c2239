// Token sampling on a GPU. The functions of sampling.h check shapes and call these.
#pragma once

#include "attend/kernels/sampling/edit_logits.h"
#include "attend/kernels/sampling/logprobs.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cuda {

void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream);
void map_ids(View<const int32_t> table, View<int32_t> ids, Stream& stream);
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream);
void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& out,
                   Stream& stream);

// Logit edits and log-probabilities on a GPU. The functions of edit_logits.h and logprobs.h check arguments
// and call these.

void edit_logits(const TensorView& logits, const LogitEdits& edits, Stream& stream);
void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Stream& stream);
void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs, Stream& stream);

}  // namespace attend::kernels::cuda
