// Rows of a warp in registers: scores of a KV tile, the online softmax, and the output accumulators.
#pragma once

#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda {

// Rows of kRowBytes in shared memory in 16-byte pieces. The piece index is xored with low bits of the row, so
// that the 8 rows that one ldmatrix phase reads are in different banks. Rows of an odd multiple of 64 bytes
// alternate between the halves of the 128 bytes of all banks, so that two of them share an xor.
template <int kRowBytes>
struct SwizzledRows {
  static constexpr int kPieces = kRowBytes / 16;
  static_assert(kPieces % 4 == 0);
  static constexpr int kGroup = kPieces % 8 == 0 ? 8 : 4;
  __device__ static uint32_t offset(int row, int piece) {
    const int low = kGroup == 8 ? row & 7 : row >> 1 & 3;
    return static_cast<uint32_t>(row * kRowBytes + ((piece ^ low) << 4));
  }
  // Converts the address of a row's piece 0 or 1 to that of the piece an even number after it, with one xor
  // and an immediate. Rows start at a multiple of 16 kGroup bytes.
  __device__ static uint32_t advance(uint32_t address, int pieces) {
    return (address ^ static_cast<uint32_t>(pieces % kGroup << 4)) +
           static_cast<uint32_t>(pieces / kGroup * kGroup * 16);
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
__device__ inline uint32_t quad_or(uint32_t x) {
  x |= __shfl_xor_sync(0xffffffffu, x, 1);
  return x | __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// kRowBlocks blocks of 16 rows. Lane l holds rows l / 4 and l / 4 + 8 of a block (`half` 0 and 1), and
// columns 2 (l % 4) and 2 (l % 4) + 1 of every 8 columns.
template <class T, int kHeadDimV, int kRowBlocks, int kKeys>
struct WarpRows {
  static constexpr bool kKeyMajor = false;
  static constexpr int kNumRowBlocks = kRowBlocks, kNumKeys = kKeys;
  // P relative to a stale row max may be up to 2^kSlack before softmax() raises it. A lane's sum of P over a
  // tile may be up to kMaxRowSum before softmax_with_stale_max() requires raising it. f16 represents both.
  static constexpr float kSlack = 8.0f, kMaxRowSum = 1024.0f;

  float scores[kRowBlocks][kKeys / 8][4];
  float out[kRowBlocks][kHeadDimV / 8][4];
  // Row max of unscaled scores; stale by at most kSlack after scaling.
  float row_max[kRowBlocks][2];
  float row_sum[kRowBlocks][2];  // of this lane's columns only

  __device__ void clear() {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[b][n][i] = 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max[b][half] = -INFINITY;
        row_sum[b][half] = 0.0f;
      }
    }
  }

  __device__ void clear_scores() {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[b][n][i] = 0.0f;
  }

  // Online softmax: scores become P = 2^(softmax_scale_log2 (score - row_max)); out and row_sum are rescaled
  // if the row max is raised. Only a row's own scores determine this, so its bits do not depend on
  // neighboring rows.
  __device__ void softmax(float softmax_scale_log2) {
    float rescale[kRowBlocks][2];
    bool changed = false;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float new_max = row_max_with_scores(b, half);
        if (!((new_max - row_max[b][half]) * softmax_scale_log2 > kSlack)) new_max = row_max[b][half];
        const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, softmax_scale_log2);
        // The product is rounded separately, so that the factor is exactly 1 for a row with unchanged max.
        rescale[b][half] = ptx::ex2_approx(__fmul_rn(row_max[b][half], softmax_scale_log2) - shift);
        changed |= new_max != row_max[b][half];
        row_max[b][half] = new_max;
        float added_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[b][n][i] = ptx::ex2_approx(scores[b][n][i] * softmax_scale_log2 - shift);
            added_sum += scores[b][n][i];
          }
        }
        row_sum[b][half] = row_sum[b][half] * rescale[b][half] + added_sum;
      }
    }
    // If no row of the warp has a new max, all factors are 1, and skipping them changes no bit.
    if (!__any_sync(0xffffffffu, changed)) return;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[b][n][i] *= rescale[b][i / 2];
  }

  // softmax() without a max over the tile: P is relative to the current row_max, and a lane's sum of P shows
  // whether P of a row is too large. In this case the scores are lost, nothing is added, the result is false,
  // and `rows_to_raise` has a bit for each such row (2 b + half). The caller must then compute the scores
  // again, call raise_row_max(), and call this with `raised`, which accepts any sum.
  __device__ bool softmax_with_stale_max(float softmax_scale_log2, bool raised, uint32_t& rows_to_raise) {
    float added[kRowBlocks][2];
    uint32_t too_large = 0;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // A row without a max has an infinite or NaN sum, which counts as too large.
        float shift = __fmul_rn(row_max[b][half], softmax_scale_log2);
        if (raised && row_max[b][half] == -INFINITY) shift = 0.0f;
        float added_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[b][n][i] = ptx::ex2_approx(scores[b][n][i] * softmax_scale_log2 - shift);
            added_sum += scores[b][n][i];
          }
        }
        added[b][half] = added_sum;
        if (!(added_sum <= kMaxRowSum)) too_large |= 1u << (2 * b + half);
      }
    }
    if (!raised && __any_sync(0xffffffffu, too_large != 0)) {
      rows_to_raise = quad_or(too_large);
      return false;
    }
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) row_sum[b][half] += added[b][half];
    return true;
  }

  // Raises the row max of `rows_to_raise` to that of the current scores and rescales out and row_sum.
  __device__ void raise_row_max(float softmax_scale_log2, uint32_t rows_to_raise) {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float new_max = row_max_with_scores(b, half);
        if ((rows_to_raise >> (2 * b + half) & 1) == 0) new_max = row_max[b][half];
        const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, softmax_scale_log2);
        const float rescale = ptx::ex2_approx(__fmul_rn(row_max[b][half], softmax_scale_log2) - shift);
        row_max[b][half] = new_max;
        row_sum[b][half] *= rescale;
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          out[b][n][2 * half] *= rescale;
          out[b][n][2 * half + 1] *= rescale;
        }
      }
    }
  }

  // Multiplies the scores of each row by its factor in `row_scales`, which starts with the warp's first row.
  __device__ void scale_scores(const float* row_scales) {
    const int first_row = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = row_scales[first_row + b * 16 + half * 8];
#pragma unroll
        for (auto& eight : scores[b]) {
          eight[2 * half] *= scale;
          eight[2 * half + 1] *= scale;
        }
      }
    }
  }

  // Sets scores without a mask bit to -inf. `get_mask(row)`: mask of one of the warp's rows; bit i is the
  // warp's key i.
  template <class VisibleOf>
  __device__ void mask(const VisibleOf& get_mask) {
    const int lane = ptx::tid_x() % 32;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t visible = get_mask(b * 16 + half * 8 + lane / 4) >> lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if ((visible >> (n * 8 + i) & 1) == 0) scores[b][n][2 * half + i] = -INFINITY;
      }
    }
  }

  // Returns the maximum of `row_max` and the row's scores.
  __device__ float row_max_with_scores(int b, int half) const {
    float new_max = row_max[b][half];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      new_max = fmaxf(new_max, fmaxf(scores[b][n][2 * half], scores[b][n][2 * half + 1]));
    return quad_max(new_max);
  }

  // Packs P as operand A of mma.m16n8k16 with V, for keys from 16 step, after softmax().
  __device__ void pack_p(int step, uint32_t (&p)[kRowBlocks][4]) const {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      const auto& low = scores[b][2 * step];
      const auto& high = scores[b][2 * step + 1];
      p[b][0] = pack(low[0], low[1], T());
      p[b][1] = pack(low[2], low[3], T());
      p[b][2] = pack(high[0], high[1], T());
      p[b][3] = pack(high[2], high[3], T());
    }
  }

  // Computes row sums over all columns. Called once, after the last tile.
  __device__ void finish_sums() {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) row_sum[b][half] = quad_sum(row_sum[b][half]);
  }
};

// Returns a lane's offset from the address of 16 rows for ldmatrix_x4(): matrices 0 and 1 are rows 0 to 7 and
// 8 to 15 of piece 0, 2 and 3 those of piece 1.
template <class Rows>
__device__ uint32_t row_lane() {
  const int lane = threadIdx.x % 32;
  return Rows::offset(lane % 16, lane / 16);
}

}  // namespace attend::kernels::cuda
