// The tiles of the GEMM of fp8 by fp8 with scales of blocks.
#pragma once

namespace attend::kernels::cuda::sm90 {

inline constexpr int kFp8BlockInputs = 128;  // that share a scale, of x and of the weight
inline constexpr int kFp8TileOuts = 128;     // of a tile, which share the weight's

}  // namespace attend::kernels::cuda::sm90
