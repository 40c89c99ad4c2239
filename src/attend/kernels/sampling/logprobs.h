// Logarithms of the probabilities of tokens: logit - log(sum of exp(logits)), at temperature 1.
#pragma once

#include "attend/kernels/sampling/edit_logits.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// As many as OpenAI's API gives at most.
inline constexpr int kMaxTopLogprobs = 20;

// For rows i of logits, f32 [num_rows, vocab_size], whose num_top[i] is at least 0: log_sums[i] = log(sum of
// exp(logits)), and the num_top[i] likeliest tokens, the likeliest first and of equals the one with the
// lowest id, from top[i * kMaxTopLogprobs] on. NaN logits count as -infinity; a row may have fewer numbers
// than num_top[i]: then the rest has token id -1. Arrays lie where the stream's device reads and writes them.
void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Stream& stream);

// logprobs[i] = the logarithm of the probability of token ids[i] by the logits before `edits`, which were
// applied since top_logprobs() computed log_sums. An id below 0 is of no token and leaves logprobs[i] alone.
void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs, Stream& stream);

}  // namespace attend::kernels
