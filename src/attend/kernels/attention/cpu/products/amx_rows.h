// Rows of q and of the accumulators for items with AMX products.
#pragma once

#include "attend/kernels/attention/cpu/item_context.h"
#include "attend/kernels/common/cpu/simd_avx512.h"

namespace attend::kernels::cpu {
namespace {

// Loads a row of q, of element type Q, as floats, padded with zeros to a multiple of 32.
template <class Q>
void load_query(const ItemContext& context, int row, float* to) {
  const AttentionProblem& problem = context.problem;
  for (const QueryPart& part : problem.q) {
    const Q* elements = static_cast<const Q*>(part.data) +
                        (context.first_token + row / context.group) * part.token_stride +
                        (context.kv_head * context.group + row % context.group) * part.head_stride;
    for (int d = 0; d < part.dim; d += 16)
      _mm512_storeu_ps(to + d, Avx512::load_first(elements + d, part.dim - d < 16 ? part.dim - d : 16));
    to += part.dim;
  }
  for (int d = problem.k.dim; d < row_stride(problem.k.dim); ++d) *to++ = 0;
}

inline void rescale_row(float* row, float scale, int n) {
  if (scale == 1.0f) return;
  for (int d = 0; d < n; d += 16)
    _mm512_storeu_ps(row + d, _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_loadu_ps(row + d)));
}

}  // namespace
}  // namespace attend::kernels::cpu
