// Choosing the next token of each request from its logits. On a GPU logits, rules and ids lie in its memory.
#pragma once

#include <cstdint>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// SamplingRule, LogitEdit, TokenLogprob: plain structs that device code includes.

// The id of a row of logits without a token to choose.
constexpr int32_t kNoToken = -1;

// How one request samples. Filters apply in this order, each to what the one before left: temperature, top_k,
// top_p, min_p (as SGLang and vLLM do).
struct SamplingRule {
  float temperature = 1.0f;  // logits are divided by it; 0: greedy
  int32_t top_k = 0;         // keep the k largest; 0: all
  float top_p = 1.0f;        // keep the smallest set of largest probabilities that reaches top_p; in (0, 1]
  float min_p = 0.0f;        // keep probabilities of at least min_p times the largest; in [0, 1]
  uint64_t seed = 0;
  uint64_t step = 0;  // index of the token in its request: with the seed, the whole random state
};

// What becomes of a token's logit x: first x / repetition where x > 0, x * repetition elsewhere; then
// + offset, which may be -infinity.
struct LogitEdit {
  int32_t token_id;
  float repetition = 1.0f;
  float offset = 0.0f;
};

// A token and the logarithm of its probability.
struct TokenLogprob {
  int32_t token_id;
  float logprob;
  bool operator==(const TokenLogprob&) const = default;
};

// Throws Error(kInvalidArgument) naming the field, its value and what is accepted.
void check(const SamplingRule& rule);

// The random number in [0, 1) that decides a token: the upper 53 bits of the output `step` (from 0) of a
// SplitMix64 generator (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014) that
// starts at the scrambled seed.
double uniform_draw(uint64_t seed, uint64_t step);

// ids[i] = index of the largest logit of row i; the lowest index of equals. logits: f32 [num_rows,
// vocab_size], last stride 1. NaN is never chosen; the id of a row of nothing else is kNoToken, so that
// it spoils no other row.
void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream);

// A GPU's filters add up measures of a row's tokens in 64 bits, of which one measure takes 44
// (cuda/cluster_cut.cuh).
inline constexpr int64_t kMaxSampledVocabOnGpu = (int64_t{1} << 20) - 1;

// ids[i] sampled from row i by rules[i]: with the kept tokens in the order of their ids, the first at which
// the sum of probabilities exceeds uniform_draw(seed, step) of the whole. So a request's tokens do not depend
// on what it is batched with. Of equal logits at the edge of a filter, the lowest ids are kept. A row whose
// largest logit is infinite, or whose rule is greedy, has the result of argmax; NaN as there. Rules on a GPU
// were checked by the caller. Throws Error(kUnsupported) for a vocabulary of more than
// kMaxSampledVocabOnGpu there.
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream);

// What sample() draws from: probabilities[i] of the tokens of row i after the filters of rules[i], 0 for
// those that they drop; a row whose token needs no draw has 1 there, and one of NaN alone 0. logits as
// sample() takes them; probabilities: f32 [num_rows, vocab_size], last stride 1; may be logits on the CPU
// only. A rule's seed and step are not read.
void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& probabilities,
                   Stream& stream);

}  // namespace attend::kernels

#pragma GCC visibility pop
