// One warp's part of a tile with K and V of fp8. ldmatrix brings 8-bit rows as if two neighbours were one
// element of 16 bits; they become f16 in registers, and the products are those of f16.
//
// So a lane gets columns 4 c to 4 c + 3 of 16 where 16-bit rows give it 2 c, 2 c + 1, 2 c + 8 and 2 c + 9:
// queries come with their columns permuted to match (fp8_queries.cuh). Of V, one lane's pair of columns goes
// to two results: of every 16 columns, the even ones are the first 8 of `out`, the odd ones the next 8.
#pragma once

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"

namespace attend::kernels::cuda::sm80 {

// As WarpTile. `kElement`: of K and V.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kRowBlocks, int kKeys, int kHeldSteps>
struct Fp8WarpTile : WarpRows<__half, kHeadDimV, kRowBlocks, kKeys> {
  using WarpRows<__half, kHeadDimV, kRowBlocks, kKeys>::scores;
  using WarpRows<__half, kHeadDimV, kRowBlocks, kKeys>::out;
  static constexpr int kQuerySteps = kHeadDimQk / 16;
  static constexpr bool kHoldQueries = kHeldSteps == kQuerySteps;
  static_assert(kHoldQueries || kHeldSteps == 2);
  using QueryRows = SwizzledRows<kHeadDimQk * 2>;
  using KRows = SwizzledRows<kHeadDimQk>;
  using VRows = SwizzledRows<kHeadDimV>;

  uint32_t queries[kHeldSteps][kRowBlocks][4];

  __device__ static uint32_t query_lane() { return row_lane<QueryRows>(); }
  __device__ static uint32_t key_lane() { return row_lane<KRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }

  __device__ static int pair_column(int lane, int n) { return n / 2 * 16 + lane % 4 * 4 + n % 2 * 2; }
  __device__ float2 pair(int b, int half, int n) const {
    return make_float2(out[b][n / 2 * 2][2 * half + n % 2], out[b][n / 2 * 2 + 1][2 * half + n % 2]);
  }

  __device__ void hold_queries(uint32_t q) {
    if constexpr (kHoldQueries) {
#pragma unroll
      for (int step = 0; step < kQuerySteps; ++step) load_queries(q, step);
    }
  }

  // Two steps of 16 columns of 16 keys come with one load.
  __device__ void multiply_qk(uint32_t q, uint32_t k) {
    constexpr int kBlocks = kKeys / 16, kPairs = kQuerySteps / 2;
    uint32_t keys[2][4];
    const auto load_keys = [&](int i) {
      ptx::ldmatrix_x4(keys[i % 2], KRows::advance(k, i / kBlocks * 2) + i % kBlocks * 16 * kHeadDimQk);
    };
    this->clear_scores();
    load_keys(0);
#pragma unroll
    for (int step_pair = 0; step_pair < kPairs; ++step_pair) {
      if constexpr (!kHoldQueries) {
        load_queries(q, 2 * step_pair);
        load_queries(q, 2 * step_pair + 1);
      }
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step_pair * kBlocks + n;
        if (i + 1 < kPairs * kBlocks) load_keys(i + 1);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const uint32_t low = low_pair<kElement>(keys[i % 2][m]), high = high_pair<kElement>(keys[i % 2][m]);
          const auto& a = queries[(2 * step_pair + m / 2) % kHeldSteps];
#pragma unroll
          for (int b = 0; b < kRowBlocks; ++b)
            ptx::mma_m16n8k16(scores[b][2 * n + m % 2], a[b], low, high, __half());
        }
      }
    }
  }

  __device__ void multiply_pv(uint32_t v) {
    constexpr int kSteps = kKeys / 16, kBlocks = kHeadDimV / 32;
    uint32_t weights[kRowBlocks][4], values[2][4];
    const auto load_values = [&](int i) {
      ptx::ldmatrix_x4_trans(values[i % 2],
                                    VRows::advance(v, i % kBlocks * 2) + i / kBlocks * 16 * kHeadDimV);
    };
    load_values(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      this->pack_weights(step, weights);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + 1 < kSteps * kBlocks) load_values(i + 1);
#pragma unroll
        for (int piece = 0; piece < 2; ++piece) {
          const EvenOdd low = even_odd_pairs<kElement>(values[i % 2][2 * piece]);
          const EvenOdd high = even_odd_pairs<kElement>(values[i % 2][2 * piece + 1]);
#pragma unroll
          for (int b = 0; b < kRowBlocks; ++b) {
            ptx::mma_m16n8k16(out[b][4 * n + 2 * piece], weights[b], low.even, high.even, __half());
            ptx::mma_m16n8k16(out[b][4 * n + 2 * piece + 1], weights[b], low.odd, high.odd, __half());
          }
        }
      }
    }
  }

 private:
  __device__ void load_queries(uint32_t q, int step) {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
      ptx::ldmatrix_x4(queries[step % kHeldSteps][b],
                         QueryRows::advance(q, step * 2) + b * 16 * kHeadDimQk * 2);
  }
};

}  // namespace attend::kernels::cuda::sm80
