#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/base/parallel.h"
#include "attend/kernels/sampling/cpu/sampling.h"
#include "attend/kernels/sampling/cpu/sampling_kernels.h"

namespace attend::kernels::cpu {
namespace {

float log_sum_exp(const SamplingKernels& kernels, const float* logits, int64_t size) {
  constexpr int64_t kChunk = 512;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t first = 0; first < size; first += kChunk)
    largest = std::max(largest, kernels.max(logits + first, std::min(kChunk, size - first)));
  if (std::isinf(largest)) return largest;
  double sum = 0.0;
  for (int64_t first = 0; first < size; first += kChunk) {
    float weights[kChunk];
    const int64_t count = std::min(kChunk, size - first);
    kernels.weigh(logits + first, largest, 1.0f, weights, count);
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(weights[i]);
  }
  return largest + static_cast<float>(std::log(sum));
}

// Finds the most likely tokens in descending order, by insertion from the end.
void find_top(const float* logits, int64_t size, View<TokenLogprob> top) {
  size_t found = 0;
  for (int64_t v = 0; v < size; ++v) {
    if (std::isnan(logits[v]) || (found == top.size() && !(logits[v] > top.back().logprob))) continue;
    size_t at = found < top.size() ? found++ : found - 1;
    for (; at > 0 && logits[v] > top[at - 1].logprob; --at) top[at] = top[at - 1];
    top[at] = {.token_id = static_cast<int32_t>(v), .logprob = logits[v]};
  }
  std::fill(top.begin() + static_cast<std::ptrdiff_t>(found), top.end(),
            TokenLogprob{-1, -std::numeric_limits<float>::infinity()});
}

}  // namespace

void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Isa isa) {
  const SamplingKernels kernels = sampling_kernels(isa);
  const int64_t vocab_size = logits.shape[1];
  parallel_for_rows(logits.shape[0], vocab_size, [&](int64_t row_idx) {
    const auto i = static_cast<size_t>(row_idx);
    if (num_top[i] < 0) return;
    const float* const row = logits.as<const float>() + row_idx * logits.strides[0];
    log_sums[i] = log_sum_exp(kernels, row, vocab_size);
    if (num_top[i] == 0) return;
    const auto mine = top.subspan(i * kMaxTopLogprobs, static_cast<size_t>(num_top[i]));
    find_top(row, vocab_size, mine);
    for (TokenLogprob& one : mine) one.logprob -= log_sums[i];
  });
}

}  // namespace attend::kernels::cpu
