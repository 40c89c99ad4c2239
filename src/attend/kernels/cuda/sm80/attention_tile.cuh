// One warp's part of a tile: scores, online softmax, and the product with V, in registers.
#pragma once

#include "attend/kernels/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda::sm80 {

// Rows of kRowBytes in shared memory in pieces of 16 bytes, the piece index xored with the row's low 3 bits,
// so that the 8 rows that one ldmatrix phase reads lie in different banks.
template <int kRowBytes>
struct SwizzledRows {
  static constexpr int kPieces = kRowBytes / 16;
  static_assert(kPieces % 8 == 0);
  __device__ static uint32_t offset(int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) << 4));
  }
};

__device__ inline uint32_t pack(float a, float b, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint32_t pack(float a, float b, __half) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A warp's accumulators: kRowBlocks blocks of 16 rows. Lane l holds rows l / 4 and l / 4 + 8 of a block
// (`half` 0 and 1), and of every 8 columns 2 (l % 4) and 2 (l % 4) + 1.
template <class T, int kHeadDimQk, int kHeadDimV, int kRowBlocks, int kKeys>
struct WarpTile {
  using QkRows = SwizzledRows<kHeadDimQk * 2>;
  using VRows = SwizzledRows<kHeadDimV * 2>;

  float scores[kRowBlocks][kKeys / 8][4];
  float out[kRowBlocks][kHeadDimV / 8][4];
  float largest[kRowBlocks][2];  // of the scores, before the factor of exp2
  float sum[kRowBlocks][2];      // of this lane's columns only

  __device__ void clear() {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[b][n][i] = 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[b][half] = -INFINITY;
        sum[b][half] = 0.0f;
      }
    }
  }

  // scores = q k^T. `q`: first row of the warp; `k`: first key of the warp.
  __device__ void multiply_qk(uint32_t q, uint32_t k) {
    const int lane = threadIdx.x % 32;
    const int q_row = lane % 16, q_piece = lane / 16;
    const int k_row = lane % 8 + lane / 16 * 8, k_piece = lane / 8 % 2;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[b][n][i] = 0.0f;
#pragma unroll
    for (int step = 0; step < kHeadDimQk / 16; ++step) {
      uint32_t a[kRowBlocks][4];
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b)
        ptx::load_matrices(a[b], q + b * 16 * kHeadDimQk * 2 + QkRows::offset(q_row, step * 2 + q_piece));
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t keys[4];
        ptx::load_matrices(keys, k + n * 16 * kHeadDimQk * 2 + QkRows::offset(k_row, step * 2 + k_piece));
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::multiply_add(scores[b][2 * n], a[b], keys[0], keys[1], T());
          ptx::multiply_add(scores[b][2 * n + 1], a[b], keys[2], keys[3], T());
        }
      }
    }
  }

  // scores become weights 2^(factor (score - largest)); out and sum are rescaled to the new largest score.
  __device__ void softmax(float factor) {
    float rescale[kRowBlocks][2];
    bool changed = false;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float highest = largest[b][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          highest = fmaxf(highest, fmaxf(scores[b][n][2 * half], scores[b][n][2 * half + 1]));
        highest = quad_max(highest);
        const float shift = highest == -INFINITY ? 0.0f : highest * factor;
        rescale[b][half] = ptx::exp2_fast(largest[b][half] * factor - shift);
        changed |= highest != largest[b][half];
        largest[b][half] = highest;
        float row_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[b][n][i] = ptx::exp2_fast(scores[b][n][i] * factor - shift);
            row_sum += scores[b][n][i];
          }
        }
        sum[b][half] = sum[b][half] * rescale[b][half] + row_sum;
      }
    }
    // Where no row of the warp has a new largest score all factors are 1: leaving them out changes no bit.
    if (!__any_sync(0xffffffffu, changed)) return;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[b][n][i] *= rescale[b][i / 2];
  }

  // out += weights v. `v`: first key of the warp.
  __device__ void multiply_pv(uint32_t v) {
    const int lane = threadIdx.x % 32;
    const int v_row = lane % 16, v_piece = lane / 16;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t weights[kRowBlocks][4];
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
        const auto& low = scores[b][2 * step];
        const auto& high = scores[b][2 * step + 1];
        weights[b][0] = pack(low[0], low[1], T());
        weights[b][1] = pack(low[2], low[3], T());
        weights[b][2] = pack(high[0], high[1], T());
        weights[b][3] = pack(high[2], high[3], T());
      }
#pragma unroll
      for (int n = 0; n < kHeadDimV / 16; ++n) {
        uint32_t values[4];
        ptx::load_matrices_transposed(values,
                                      v + step * 16 * kHeadDimV * 2 + VRows::offset(v_row, n * 2 + v_piece));
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::multiply_add(out[b][2 * n], weights[b], values[0], values[1], T());
          ptx::multiply_add(out[b][2 * n + 1], weights[b], values[2], values[3], T());
        }
      }
    }
  }

  // Sums over all columns: call once, after the last tile.
  __device__ void finish_sums() {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) sum[b][half] = quad_sum(sum[b][half]);
  }
};

}  // namespace attend::kernels::cuda::sm80
