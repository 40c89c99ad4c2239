// How a partial result of MLA lies in the plan's memory.
#pragma once

namespace attend::kernels::cuda::sm90 {

// A row has the columns of every 16 in the order 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15: as the threads of
// wgmma have them, so that each writes and reads four at once. Floats from one row to the next:
__device__ inline int mla_partial_stride(int head_dim_v) { return (head_dim_v + 15) / 16 * 16; }
// The first of the columns of the four floats at a position, a multiple of 4; the others are the next one and
// those 8 further.
__device__ inline int mla_partial_column(int position) { return position / 16 * 16 + position % 16 / 2; }

}  // namespace attend::kernels::cuda::sm90
