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
  // `address` of a row's piece 0 or 1, in rows that begin at a multiple of 128 bytes, to that of the piece an
  // even number behind it: one xor and an immediate.
  __device__ static uint32_t advance(uint32_t address, int pieces) {
    return (address ^ static_cast<uint32_t>((pieces & 7) << 4)) + static_cast<uint32_t>(pieces / 8 * 128);
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

  // What this lane adds to the address of a block's first row, for load_matrices: rows by rows of the left
  // operand and of V (by columns), and keys.
  template <class Rows>
  __device__ static uint32_t row_lane() {
    const int lane = threadIdx.x % 32;
    return Rows::offset(lane % 16, lane / 16);
  }
  __device__ static uint32_t query_lane() { return row_lane<QkRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }
  __device__ static uint32_t key_lane() {
    const int lane = threadIdx.x % 32;
    return QkRows::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // scores = q k^T. `q`: first row of the warp plus query_lane(); `k`: first key of the warp plus key_lane().
  // What the next products need is loaded before the present ones.
  __device__ void multiply_qk(uint32_t q, uint32_t k) {
    constexpr int kSteps = kHeadDimQk / 16, kBlocks = kKeys / 16;
    uint32_t a[2][kRowBlocks][4], keys[2][4];
    const auto load_queries = [&](int step) {
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b)
        ptx::load_matrices(a[step % 2][b], QkRows::advance(q, step * 2) + b * 16 * kHeadDimQk * 2);
    };
    const auto load_keys = [&](int i) {
      ptx::load_matrices(keys[i % 2],
                         QkRows::advance(k, i / kBlocks * 2) + i % kBlocks * 16 * kHeadDimQk * 2);
    };
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[b][n][i] = 0.0f;
    load_queries(0);
    load_keys(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) load_queries(step + 1);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + 1 < kSteps * kBlocks) load_keys(i + 1);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::multiply_add(scores[b][2 * n], a[step % 2][b], keys[i % 2][0], keys[i % 2][1], T());
          ptx::multiply_add(scores[b][2 * n + 1], a[step % 2][b], keys[i % 2][2], keys[i % 2][3], T());
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

  // out += weights v. `v`: first key of the warp plus value_lane().
  __device__ void multiply_pv(uint32_t v) {
    constexpr int kSteps = kKeys / 16, kBlocks = kHeadDimV / 16;
    uint32_t weights[kRowBlocks][4], values[2][4];
    const auto load_values = [&](int i) {
      ptx::load_matrices_transposed(values[i % 2],
                                    VRows::advance(v, i % kBlocks * 2) + i / kBlocks * 16 * kHeadDimV * 2);
    };
    load_values(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
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
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + 1 < kSteps * kBlocks) load_values(i + 1);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::multiply_add(out[b][2 * n], weights[b], values[i % 2][0], values[i % 2][1], T());
          ptx::multiply_add(out[b][2 * n + 1], weights[b], values[i % 2][2], values[i % 2][3], T());
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
