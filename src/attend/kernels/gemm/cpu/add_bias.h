// Bias of a linear layer, added to finished sums.
#pragma once

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {
namespace {

template <class S>
void add_bias(const LinearPart& part) {
  if (part.bias == nullptr) return;
  visit_weight(part.bias, part.bias_dtype, [&](const auto* bias) {
    for (int64_t row = 0; row < part.num_rows; ++row) {
      float* const out = part.out + row * part.out_stride;
      for_each_vector<S>(part.num_outs, [&](int64_t o, int count) {
        const auto sum = S::add(S::load_first(out + o, count), S::load_first(bias + o, count));
        S::store_first(out + o, sum, count);
      });
    }
  });
}

}  // namespace
}  // namespace attend::kernels::cpu
