// Linear kernels for the instruction set S.
#pragma once

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/gemm/cpu/linear_packed_rows.h"

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

template <class S>
void skinny(const LinearPart& part) {
  visit_rows<S>(part, [&]<class Rows>(TypeTag<Rows>) { multiply_skinny<S, Rows>(part); });
  add_bias<S>(part);
}

// True if rows of x are packed. With 16 lanes, each step of a panel has enough products to hide the latency
// of L2 loads, so that packing is unnecessary.
template <class S>
inline constexpr bool kPacksRows = S::kLanes < 16;

template <class S>
void packed(const LinearPart& part, [[maybe_unused]] float* tiles) {
  visit_rows<S>(part, [&]<class Rows>(TypeTag<Rows>) {
    if constexpr (Rows::kInOrder && kPacksRows<S>) multiply_packed_rows<S, Rows>(part, tiles);
    if constexpr (Rows::kInOrder && !kPacksRows<S>) multiply_packed<S, Rows>(part);
  });
  add_bias<S>(part);
}

template <class S>
LinearKernel make_linear_kernel() {
  return {.skinny = &skinny<S>,
          .packed = &packed<S>,
          .num_tile_floats = kPacksRows<S> ? kPackedTileFloats<S> : 0,
          .max_packed_rows = kPacksRows<S> ? kPackedRows : kPanelsRows,
          .max_packed_outs = kPacksRows<S> ? kPackedRowsOuts : kPanelsOuts};
}

}  // namespace
}  // namespace attend::kernels::cpu
