// SamplingKernels in the vectors of simd.h.
#pragma once

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/sampling/cpu/sampling_kernels.h"

namespace attend::kernels::cpu {
namespace {

template <class S>
float max_logit(const float* logits, int64_t n) {
  constexpr float kLowest = -__builtin_huge_valf();
  auto largest = S::set1(kLowest);
  int64_t i = 0;
  // max(a, b) is b if either is NaN.
  for (; i + S::kLanes <= n; i += S::kLanes) largest = S::max(S::load(logits + i), largest);
  float result = S::reduce_max(largest);
  for (; i < n; ++i) result = logits[i] > result ? logits[i] : result;
  return result;
}

template <class S>
void weigh_logits(const float* logits, float max, float inverse_temperature, float* weights, int64_t n) {
  const auto highest = S::set1(max), factor = S::set1(inverse_temperature);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    const auto logit = S::load_first(logits + i, count);
    const auto weight = exp_nonpositive<S>(S::mul(S::sub(logit, highest), factor));
    S::store_first(weights + i, S::if_nan(logit, S::zero(), weight), count);
  });
}

template <class S>
SamplingKernels make_sampling_kernels() {
  return {.max = &max_logit<S>, .weigh = &weigh_logits<S>};
}

}  // namespace
}  // namespace attend::kernels::cpu
