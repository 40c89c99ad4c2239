// Log-probabilities of tokens: logit - log(sum of exp(logits)), at temperature 1.
#pragma once

#include "attend/kernels/sampling/edit_logits.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Maximum of OpenAI's API.
inline constexpr int kMaxTopLogprobs = 20;

// For rows i of logits, f32 [num_rows, vocab_size], with num_top[i] >= 0: log_sums[i] = log(sum of
// exp(logits)), and top[i * kMaxTopLogprobs] onwards gets the num_top[i] most likely tokens in descending
// order; equal ones are ordered by id. NaN logits count as -infinity. If a row has fewer than num_top[i]
// logits that are not NaN, the remaining entries have token id -1. Arrays are in memory that the stream's
// device can access.
void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Stream& stream);

// logprobs[i] = log-probability of token ids[i] before `edits`, which were applied after top_logprobs()
// computed log_sums. For an id below 0, logprobs[i] is not written.
void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs, Stream& stream);

}  // namespace attend::kernels
