// How a partial result of MLA lies in the plan's memory.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::sm90 {

// As the threads of wgmma have it: of 8 rows after one another the blocks of 16 columns, each of 4 floats of
// every lane. Lane l has columns 2 (l % 4), the next one, and those 8 further, of row l / 4. So a warp writes
// and reads 512 bytes that lie next to one another.
inline constexpr int kMlaPartialRows = 8, kMlaPartialColumns = 16;
inline constexpr int kMlaPartialBlock = kMlaPartialRows * kMlaPartialColumns;

__device__ inline int mla_partial_blocks(int head_dim_v) {
  return (head_dim_v + kMlaPartialColumns - 1) / kMlaPartialColumns;
}
// Where the blocks of a row group begin, in floats. `partial_rows`: of every partial result, a multiple of
// kMlaPartialRows.
__device__ inline int64_t mla_partial_begin(int partial_idx, int partial_rows, int row_group,
                                            int head_dim_v) {
  return (int64_t{partial_idx} * (partial_rows / kMlaPartialRows) + row_group) *
         (mla_partial_blocks(head_dim_v) * kMlaPartialBlock);
}

}  // namespace attend::kernels::cuda::sm90
