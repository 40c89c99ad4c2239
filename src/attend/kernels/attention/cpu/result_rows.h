// Results of one token and query head: scaling, merging by LSE, sinks, and output.
#pragma once

#include <math.h>

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/common/cpu/row_kernels_instances.h"

namespace attend::kernels::cpu {
namespace {

// row *= scale, for n elements that fill whole vectors.
template <class S>
void scale_row(float* row, float scale, int n) {
  for (int d = 0; d < n; d += S::kLanes) S::store(row + d, S::mul(S::load(row + d), S::set1(scale)));
}

// Returns the share of a softmax that remains with one additional logit: 1 / (1 + e^(sink - lse)).
inline float scale_for_sink(float lse, float sink) { return 1.0f / (1.0f + ::expf(sink - lse)); }

// Merges (b, lse_b) into (a, lse_a) with the formula of attention.h. Merging with an empty row changes no
// bit.
template <class S>
void merge_row(float* a, float& lse_a, const float* b, float lse_b, int n) {
  const float max = lse_a > lse_b ? lse_a : lse_b;
  if (max == kEmptyLse) return;
  const float scale_a = ::expf(lse_a - max), scale_b = ::expf(lse_b - max);
  const float total = scale_a + scale_b;
  const auto wa = S::set1(scale_a), wb = S::set1(scale_b), inverse = S::set1(1.0f / total);
  for (int d = 0; d < n; d += S::kLanes) {
    const int count = n - d < S::kLanes ? n - d : S::kLanes;
    const auto sum = S::fma(S::load_first(a + d, count), wa, S::mul(S::load_first(b + d, count), wb));
    S::store_first(a + d, S::mul(sum, inverse), count);
  }
  lse_a = max + ::logf(total);
}

template <class S>
void write_partial(const AttentionProblem& problem, int64_t row, int head, const float* result, float lse) {
  const int64_t index = row * problem.num_q_heads + head;
  write_row<S>(result, 1.0f, problem.partial_out + index * problem.v.dim, DType::kF32, problem.v.dim);
  problem.partial_lse[index] = lse;
}

// Final step of a row: the sink is part of the denominator, but not of the LSE.
template <class S>
void write_final(const AttentionProblem& problem, int64_t token, int head, const float* result, float lse) {
  const TensorView& out = problem.out;
  const float scale =
      problem.sinks == nullptr || lse == kEmptyLse ? 1.0f : scale_for_sink(lse, problem.sinks[head]);
  char* const to = static_cast<char*>(out.data) + (token * out.strides[0] + head * out.strides[1]) *
                                                      static_cast<int64_t>(size_of(out.dtype));
  write_row<S>(result, scale, to, out.dtype, problem.v.dim);
  if (!problem.lse.empty())
    static_cast<float*>(problem.lse.data)[token * problem.lse.strides[0] + head * problem.lse.strides[1]] =
        lse == kEmptyLse ? problem.empty_lse : lse;
}

// Merges the splits of one token from left to right; `row`: [v.dim].
template <class S>
void merge_token(const AttentionProblem& problem, const MergeItem& item, float* row) {
  const int dim = problem.v.dim;
  for (int head = 0; head < problem.num_q_heads; ++head) {
    float lse = kEmptyLse;
    for (int d = 0; d < dim; ++d) row[d] = 0;
    for (int split = 0; split < item.num_splits; ++split) {
      const int64_t index =
          (item.partial + static_cast<int64_t>(split) * item.stride) * problem.num_q_heads + head;
      merge_row<S>(row, lse, problem.partial_out + index * dim, problem.partial_lse[index], dim);
    }
    write_final<S>(problem, item.token, head, row, lse);
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
