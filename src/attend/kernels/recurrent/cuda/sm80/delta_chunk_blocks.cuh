// Blocks of T and A of one chunk and head: the inverse of I + M, and their storage in the workspace.
//
// T is computed in blocks of 16 x 16. Diagonal blocks are inverted by substitution in float32. Row w of
// blocks, by warp w: T[w][j] = -(sum over j < k <= w of T[w][k] M[k][j]) T[j][j], with products in float16.
// Elements of T and M are at most 2, since each step of the recurrence is a contraction.
#pragma once

#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_gates.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_rows.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_tiles.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMatricesWarps = 4, kMatricesThreads = 32 * kMatricesWarps;
inline constexpr int kBlock = 16;  // rows and columns of a block

// Matrices of one head in shared memory.
struct MatrixBlocks {
  static constexpr int kStride = PaddedRows<kDeltaChunk>::kStride,
                       kInverseStride = PaddedRows<kBlock>::kStride, kDiagonalStride = kBlock + 4;

  alignas(16) __half m[kDeltaChunk * kStride];
  alignas(16) __half inverses[kMatricesWarps][kBlock * kInverseStride];   // of diagonal blocks of I + M
  alignas(16) float diagonals[kMatricesWarps][kBlock * kDiagonalStride];  // M, then the inverses
};

// Gates of a value head for the whole chunk, and the running sums of the logarithms of its decays. One warp.
template <class T>
__device__ inline void chunk_gates(const DeltaParams& params, const DeltaChunk& chunk, int key_head, int head,
                                   float* log_decay, float* betas, int lane) {
  const float rate = expf(params.a_log[head]);
  float sums[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    DeltaGates gates{};
    if (chunk.has(2 * lane + i))
      gates = delta_gates<T>(params, chunk.first + 2 * lane + i, key_head, head, rate);
    sums[i] = gates.log_decay;
    betas[2 * lane + i] = gates.beta;
  }
  float end = sums[0] + sums[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, end, step);
    if (lane >= step) end += other;
  }
  float before = __shfl_up_sync(0xffffffffu, end, 1);
  if (lane == 0) before = 0.0f;
  log_decay[2 * lane] = before + sums[0];
  log_decay[2 * lane + 1] = end;
}

// Norm factor of row `thread` / 2, in both threads of the row.
template <class T, int kDimK>
__device__ inline float chunk_row_norm(const char* rows, int thread) {
  constexpr int kHalf = kDimK / 2;
  const T* const half =
      reinterpret_cast<const T*>(rows) + thread / 2 * PaddedRows<kDimK>::kStride + thread % 2 * kHalf;
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kHalf; c += 8) {
    const uint4 bits = *reinterpret_cast<const uint4*>(half + c);
    const T* const elements = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float x = static_cast<float>(elements[i]);
      sum = fmaf(x, x, sum);
    }
  }
  return delta_norm(sum + __shfl_xor_sync(0xffffffffu, sum, 1));
}

// Inverts the unit lower triangular I + M of one block in place, one column per lane of 16, and rounds a
// copy.
__device__ inline void invert_block(float* m, __half* rounded, int lane) {
  constexpr int kStride = MatrixBlocks::kDiagonalStride, kRoundedStride = MatrixBlocks::kInverseStride;
  const int column = lane % kBlock;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float even = i == column ? 1.0f : 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j + 1 < i; j += 2) {
      const float2 pair = *reinterpret_cast<const float2*>(m + i * kStride + j);
      even = fmaf(-pair.x, x[j], even);
      odd = fmaf(-pair.y, x[j + 1], odd);
    }
    if (i % 2 != 0) even = fmaf(-m[i * kStride + i - 1], x[i - 1], even);
    x[i] = even + odd;
  }
  __syncwarp();
  if (lane < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      m[i * kStride + column] = x[i];
      rounded[i * kRoundedStride + column] = __float2half_rn(x[i]);
    }
  }
  __syncwarp();
}

// Computes T and writes T and A to the workspace of a chunk and head. The CTA's warps call it together,
// `warp` for the rows [16 warp, 16 warp + 16) of the chunk. elements(block, half, a, m) computes the elements
// of A and of M of a tile of these rows and the columns from 16 block + 8 half on, as in d of mma.m16n8k16;
// elements of M on and above the diagonal are 0, and so are those of A above it.
template <class T, class Elements>
__device__ inline void store_chunk_matrices(MatrixBlocks& blocks, char* out, int warp, int lane,
                                            const Elements& elements) {
  const int row = warp * kBlock + lane / 4;  // and row + 8
  const int column = lane % 4 * 2;           // and column + 1, in each tile
  float* const diagonal = blocks.diagonals[warp];
  const int first_block = warp * (warp + 1) / 2;
  const auto store_block = [&](int matrix, int block, const uint4& bits) {
    *reinterpret_cast<uint4*>(out + matrix * kDeltaMatrixBytes + (first_block + block) * kDeltaBlockBytes +
                              lane * 16) = bits;
  };
#pragma unroll
  for (int block = 0; block < kMatricesWarps; ++block) {
    if (block > warp) continue;
    float a[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m[4];
      elements(block, half, a[half], m);
      if (block == warp) {
        float* const to = diagonal + lane / 4 * MatrixBlocks::kDiagonalStride + half * 8 + column;
        *reinterpret_cast<float2*>(to) = make_float2(m[0], m[1]);
        *reinterpret_cast<float2*>(to + 8 * MatrixBlocks::kDiagonalStride) = make_float2(m[2], m[3]);
      } else {
        __half* const to = blocks.m + row * MatrixBlocks::kStride + block * kBlock + half * 8 + column;
        *reinterpret_cast<__half2*>(to) = __floats2half2_rn(m[0], m[1]);
        *reinterpret_cast<__half2*>(to + 8 * MatrixBlocks::kStride) = __floats2half2_rn(m[2], m[3]);
      }
    }
    store_block(1, block, to_operand_b<T>(a[0], a[1]));
  }
  __syncwarp();
  invert_block(diagonal, blocks.inverses[warp], lane);
  __syncthreads();

  uint32_t row_blocks[kMatricesWarps][4];  // T[warp][k] as operand A
  const uint32_t inverses = ptx::shared_address(blocks.inverses), m = ptx::shared_address(blocks.m);
  constexpr int kInverseBytes = kBlock * MatrixBlocks::kInverseStride * 2;
#pragma unroll
  for (int block = kMatricesWarps - 1; block >= 0; --block) {
    if (block > warp) continue;
    float t[2][4];
    if (block == warp) {
      ptx::ldmatrix_x4(row_blocks[block],
                       address_a<MatrixBlocks::kInverseStride>(inverses + warp * kInverseBytes, lane));
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          t[half][i] =
              diagonal[(lane / 4 + i / 2 * 8) * MatrixBlocks::kDiagonalStride + half * 8 + column + i % 2];
    } else {
      float sum[2][4] = {};
#pragma unroll
      for (int k = block + 1; k < kMatricesWarps; ++k) {
        if (k > warp) continue;
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, address_a<MatrixBlocks::kStride>(
                                      m + (k * kBlock * MatrixBlocks::kStride + block * kBlock) * 2, lane));
        ptx::mma_m16n8k16(sum[0], row_blocks[k], b[0], b[1], __half{});
        ptx::mma_m16n8k16(sum[1], row_blocks[k], b[2], b[3], __half{});
      }
      uint32_t a[4], b[4];
      to_operand_a<__half>(sum[0], sum[1], a);
      ptx::ldmatrix_x4_trans(b,
                             address_a<MatrixBlocks::kInverseStride>(inverses + block * kInverseBytes, lane));
      float product[2][4] = {};
      ptx::mma_m16n8k16(product[0], a, b[0], b[1], __half{});
      ptx::mma_m16n8k16(product[1], a, b[2], b[3], __half{});
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 4; ++i) t[half][i] = -product[half][i];
      to_operand_a<__half>(t[0], t[1], row_blocks[block]);
    }
    store_block(0, block, to_operand_b<T>(t[0], t[1]));
  }
}

}  // namespace attend::kernels::cuda::sm80
