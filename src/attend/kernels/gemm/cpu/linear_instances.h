// Linear kernels for the instruction set S.
#pragma once

#include "attend/kernels/gemm/cpu/add_bias.h"
#include "attend/kernels/gemm/cpu/linear_packed_rows.h"

namespace attend::kernels::cpu {
namespace {

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
