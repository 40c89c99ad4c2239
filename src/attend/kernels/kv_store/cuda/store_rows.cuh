// Store of one token's rows by the threads of a CTA.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/kv_store/cuda/store_kernel.h"

namespace attend::kernels::cuda {

// Stores the rows of `kind` of all heads at `slot`, which is at least 0.
__device__ inline void store_rows(const StoreParams& params, int token, int slot, int kind) {
  const StoreRows& rows = params.rows[kind];
  const int64_t to_row =
      slot / params.page_size * rows.page_stride + slot % params.page_size * rows.token_stride;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_heads * rows.head_dim;
       i += static_cast<int>(blockDim.x)) {
    const int head = i / rows.head_dim, d = i % rows.head_dim;
    const float value = load_element(
        rows.from.data, token * rows.from.token_stride + head * rows.from.head_stride + d, rows.from_element);
    store_element(rows.to, to_row + head * rows.head_stride + rows.first_column + d, rows.to_element,
                  value / rows.scale);
  }
}

}  // namespace attend::kernels::cuda
