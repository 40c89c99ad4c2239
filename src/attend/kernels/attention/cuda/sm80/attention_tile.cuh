// One warp's part of a tile with K and V of 16 bits: their products with the rows.
#pragma once

#include "attend/kernels/attention/cuda/common/warp_rows.cuh"

namespace attend::kernels::cuda::sm80 {

// `kHeldSteps`: how many steps of 16 elements of q are in registers at a time.
template <class T, int kHeadDimQk, int kHeadDimV, int kRowBlocks, int kKeys, int kHeldSteps>
struct WarpTile : WarpRows<T, kHeadDimV, kRowBlocks, kKeys> {
  using WarpRows<T, kHeadDimV, kRowBlocks, kKeys>::scores;
  using WarpRows<T, kHeadDimV, kRowBlocks, kKeys>::out;
  static constexpr int kQuerySteps = kHeadDimQk / 16;
  static constexpr bool kHoldQueries = kHeldSteps == kQuerySteps;
  static_assert(kHoldQueries || kHeldSteps <= 2);
  // Fragments of keys or values that are under way or used at a time.
  static constexpr int kFragments = kRowBlocks == 2 && kHeadDimV > 64 ? 2 : 4;
  using QkRows = SwizzledRows<kHeadDimQk * 2>;
  using VRows = SwizzledRows<kHeadDimV * 2>;

  uint32_t queries[kHeldSteps][kRowBlocks][4];

  // What this lane adds to the address of a block's first row, for load_matrices.
  __device__ static uint32_t query_lane() { return row_lane<QkRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }
  __device__ static uint32_t key_lane() {
    const int lane = threadIdx.x % 32;
    return QkRows::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // Of the kHeadDimV / 8 pairs of results that a lane has of a row: the first column, and the two values.
  __device__ static int pair_column(int lane, int n) { return n * 8 + lane % 4 * 2; }
  __device__ float2 pair(int b, int half, int n) const {
    return make_float2(out[b][n][2 * half], out[b][n][2 * half + 1]);
  }

  // Before the first multiply_qk(), with its `q`.
  __device__ void hold_queries(uint32_t q) {
    if constexpr (kHoldQueries) {
#pragma unroll
      for (int step = 0; step < kQuerySteps; ++step) load_queries(q, step);
    }
  }

  // scores = q k^T. `q`: first row of the warp plus query_lane(); `k`: first key of the warp plus key_lane().
  // What the next products need is loaded before the present ones.
  __device__ void multiply_qk(uint32_t q, uint32_t k) {
    constexpr int kBlocks = kKeys / 16;
    uint32_t keys[kFragments][4];
    const auto load_keys = [&](int i) {
      ptx::ldmatrix_x4(keys[i % kFragments],
                         QkRows::advance(k, i / kBlocks * 2) + i % kBlocks * 16 * kHeadDimQk * 2);
    };
    this->clear_scores();
    if constexpr (!kHoldQueries && kHeldSteps == 2) load_queries(q, 0);
#pragma unroll
    for (int i = 0; i + 1 < kFragments; ++i) load_keys(i);
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
      if constexpr (!kHoldQueries) {
        const int next = step + kHeldSteps - 1;
        if (next < kQuerySteps) load_queries(q, next);
      }
      const auto& a = queries[step % kHeldSteps];
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + kFragments - 1 < kQuerySteps * kBlocks) load_keys(i + kFragments - 1);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::mma_m16n8k16(scores[b][2 * n], a[b], keys[i % kFragments][0], keys[i % kFragments][1], T());
          ptx::mma_m16n8k16(scores[b][2 * n + 1], a[b], keys[i % kFragments][2], keys[i % kFragments][3],
                            T());
        }
      }
    }
  }

  // out += weights v. `v`: first key of the warp plus value_lane().
  __device__ void multiply_pv(uint32_t v) {
    constexpr int kSteps = kKeys / 16, kBlocks = kHeadDimV / 16;
    uint32_t weights[kRowBlocks][4], values[kFragments][4];
    const auto load_values = [&](int i) {
      ptx::ldmatrix_x4_trans(values[i % kFragments],
                                    VRows::advance(v, i % kBlocks * 2) + i / kBlocks * 16 * kHeadDimV * 2);
    };
#pragma unroll
    for (int i = 0; i + 1 < kFragments; ++i) load_values(i);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      this->pack_weights(step, weights);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + kFragments - 1 < kSteps * kBlocks) load_values(i + kFragments - 1);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::mma_m16n8k16(out[b][2 * n], weights[b], values[i % kFragments][0], values[i % kFragments][1],
                            T());
          ptx::mma_m16n8k16(out[b][2 * n + 1], weights[b], values[i % kFragments][2],
                            values[i % kFragments][3], T());
        }
      }
    }
  }

 private:
  __device__ void load_queries(uint32_t q, int step) {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
      ptx::ldmatrix_x4(queries[step % kHeldSteps][b],
                         QkRows::advance(q, step * 2) + b * 16 * kHeadDimQk * 2);
  }
};

}  // namespace attend::kernels::cuda::sm80
