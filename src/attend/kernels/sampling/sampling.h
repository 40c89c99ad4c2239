// Sampling of the next token of each request from its logits. On a GPU, logits, rules and ids are in device
// memory.
#pragma once

#include <cstdint>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// Id of a row of logits that are all NaN.
constexpr int32_t kNoToken = -1;

// Sampling parameters of one request. Filters apply in this order, each to the tokens that the previous one
// kept: temperature, top_k, top_p, min_p (like SGLang and vLLM).
struct SamplingRule {
  float temperature = 1.0f;  // logits are divided by it; 0: greedy
  int32_t top_k = 0;         // keep the k largest; 0: all
  float top_p = 1.0f;        // keep the smallest set of largest probabilities that reaches top_p; in (0, 1]
  float min_p = 0.0f;        // keep probabilities of at least min_p times the largest; in [0, 1]
  uint64_t seed = 0;
  uint64_t step = 0;  // index of the token in its request: with the seed, the whole random state
};

// Change of a token's logit x: x / repetition if x > 0, otherwise x * repetition; then + offset, which may be
// -infinity.
struct LogitEdit {
  int32_t token_id;
  float repetition = 1.0f;
  float offset = 0.0f;
};

// A token and its log-probability.
struct TokenLogprob {
  int32_t token_id;
  float logprob;
  bool operator==(const TokenLogprob&) const = default;
};

// Throws Error(kInvalidArgument) with the field, its value and what is accepted.
void check(const SamplingRule& rule);

// Returns the random value in [0, 1) that selects a token: the upper 53 bits of output `step` (from 0) of a
// SplitMix64 generator (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014) that
// starts at the scrambled seed.
double uniform_draw(uint64_t seed, uint64_t step);

// ids[i] = index of the largest logit of row i, the lowest index if equal. logits: f32 [num_rows,
// vocab_size], last stride 1. NaN is never selected; the id of a row of only NaN is kNoToken, so that other
// rows are not affected.
void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream);

// ids[i] = table[ids[i]], for ids that are not kNoToken: the tokens of a head with some of the tokens only.
// `ids` are indices of the table. Both are in memory that the device accesses.
void map_ids(View<const int32_t> table, View<int32_t> ids, Stream& stream);

// Limit of a GPU, where filters add measures of a row's tokens in 64 bits, with 44 bits per measure
// (cuda/cluster_cut.cuh).
inline constexpr int64_t kMaxSampledVocabOnGpu = (int64_t{1} << 20) - 1;

// Samples ids[i] from row i with rules[i]: among the kept tokens in the order of their ids, the first one at
// which the sum of probabilities exceeds uniform_draw(seed, step) of the total. So a request's tokens do not
// depend on its batch. Of equal logits at the boundary of a filter, the lowest ids are kept. A row with an
// infinite largest logit, or with a greedy rule, has the result of argmax; NaN is handled as there. On a GPU,
// the caller must have checked the rules. Throws Error(kUnsupported) for a vocabulary of more than
// kMaxSampledVocabOnGpu on a GPU.
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream);

// Distribution that sample() draws from: probabilities[i] of the tokens of row i after the filters of
// rules[i], 0 for dropped tokens. A row with a deterministic token has 1 there; a row of only NaN has 0.
// logits as in sample(); probabilities: f32 [num_rows, vocab_size], last stride 1; may be logits on the CPU
// only. The seed and step of a rule are not read.
void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& probabilities,
                   Stream& stream);

}  // namespace attend::kernels

#pragma GCC visibility pop
