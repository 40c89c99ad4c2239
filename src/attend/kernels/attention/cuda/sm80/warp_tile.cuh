// Products of a warp with a KV tile, with mma.m16n8k16 and query rows as operand A (8 rows:
// key_major_tile.cuh).
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Consumer: rows of one warp against its keys of a 16-bit KV tile. `kRegisterQuerySteps`: steps of 16
// elements of q that are in registers at a time.
template <class T, int kHeadDimQk, int kHeadDimV, int kRowBlocks, int kKeys, int kRegisterQuerySteps>
struct WarpTile : WarpRows<T, kHeadDimV, kRowBlocks, kKeys> {
  using WarpRows<T, kHeadDimV, kRowBlocks, kKeys>::scores;
  using WarpRows<T, kHeadDimV, kRowBlocks, kKeys>::out;
  static constexpr int kQuerySteps = kHeadDimQk / 16;
  static constexpr bool kQueriesInRegisters = kRegisterQuerySteps == kQuerySteps;
  static_assert(kQueriesInRegisters || kRegisterQuerySteps <= 2);
  // Fragments of keys or values that are in flight or in use at a time.
  static constexpr int kFragments = kRowBlocks == 2 && kHeadDimV > 64 ? 2 : 4;
  using QkRows = SwizzledRows<kHeadDimQk * 2>;
  using VRows = SwizzledRows<kHeadDimV * 2>;

  uint32_t queries[kRegisterQuerySteps][kRowBlocks][4];

  // Returns this lane's offset from the address of a block's first row, for ldmatrix_x4().
  __device__ static uint32_t query_lane() { return row_lane<QkRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }
  __device__ static uint32_t key_lane() {
    const int lane = threadIdx.x % 32;
    return QkRows::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // Returns the first column of one of the kHeadDimV / 8 pairs of output that a lane has per row; pair()
  // returns the two values.
  __device__ static int pair_column(int lane, int n) { return n * 8 + lane % 4 * 2; }
  __device__ float2 pair(int b, int half, int n) const {
    return make_float2(out[b][n][2 * half], out[b][n][2 * half + 1]);
  }

  // Called before the first multiply_qk(), with the same `q`.
  __device__ void load_queries_to_registers(uint32_t q) {
    if constexpr (kQueriesInRegisters) {
#pragma unroll
      for (int step = 0; step < kQuerySteps; ++step) load_queries(q, step);
    }
  }

  // scores = q k^T. `q`: first row of the warp plus query_lane(); `k`: first key of the warp plus key_lane().
  // The next fragments are loaded before the current MMAs.
  __device__ void multiply_qk(uint32_t q, uint32_t k) {
    constexpr int kBlocks = kKeys / 16;
    uint32_t keys[kFragments][4];
    const auto load_keys = [&](int i) {
      ptx::ldmatrix_x4(keys[i % kFragments],
                       QkRows::advance(k, i / kBlocks * 2) + i % kBlocks * 16 * kHeadDimQk * 2);
    };
    this->clear_scores();
    if constexpr (!kQueriesInRegisters && kRegisterQuerySteps == 2) load_queries(q, 0);
#pragma unroll
    for (int i = 0; i + 1 < kFragments; ++i) load_keys(i);
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
      if constexpr (!kQueriesInRegisters) {
        const int next = step + kRegisterQuerySteps - 1;
        if (next < kQuerySteps) load_queries(q, next);
      }
      const auto& a = queries[step % kRegisterQuerySteps];
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

  // out += P v. `v`: first key of the warp plus value_lane().
  __device__ void multiply_pv(uint32_t v) {
    constexpr int kSteps = kKeys / 16, kBlocks = kHeadDimV / 16;
    uint32_t p[kRowBlocks][4], values[kFragments][4];
    const auto load_values = [&](int i) {
      ptx::ldmatrix_x4_trans(values[i % kFragments],
                             VRows::advance(v, i % kBlocks * 2) + i / kBlocks * 16 * kHeadDimV * 2);
    };
#pragma unroll
    for (int i = 0; i + 1 < kFragments; ++i) load_values(i);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      this->pack_p(step, p);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + kFragments - 1 < kSteps * kBlocks) load_values(i + kFragments - 1);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::mma_m16n8k16(out[b][2 * n], p[b], values[i % kFragments][0], values[i % kFragments][1], T());
          ptx::mma_m16n8k16(out[b][2 * n + 1], p[b], values[i % kFragments][2], values[i % kFragments][3],
                            T());
        }
      }
    }
  }

 private:
  __device__ void load_queries(uint32_t q, int step) {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
      ptx::ldmatrix_x4(queries[step % kRegisterQuerySteps][b],
                       QkRows::advance(q, step * 2) + b * 16 * kHeadDimQk * 2);
  }
};

// Like WarpTile, for fp8 K and V of type `kElement`. ldmatrix loads 8-bit rows as if two neighbors were one
// 16-bit element; they are converted to f16 in registers, and the MMAs are f16.
//
// So a lane gets columns 4 c to 4 c + 3 of 16 instead of 2 c, 2 c + 1, 2 c + 8 and 2 c + 9: the columns of
// queries are permuted to match (store_f16_queries). A lane's pair of columns of V contributes to two
// accumulators: of every 16 columns, the even ones are the first 8 of `out`, the odd ones the next 8.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kRowBlocks, int kKeys, int kRegisterQuerySteps>
struct Fp8WarpTile : WarpRows<__half, kHeadDimV, kRowBlocks, kKeys> {
  using WarpRows<__half, kHeadDimV, kRowBlocks, kKeys>::scores;
  using WarpRows<__half, kHeadDimV, kRowBlocks, kKeys>::out;
  static constexpr int kQuerySteps = kHeadDimQk / 16;
  static constexpr bool kQueriesInRegisters = kRegisterQuerySteps == kQuerySteps;
  static_assert(kQueriesInRegisters || kRegisterQuerySteps == 2);
  using QueryRows = SwizzledRows<kHeadDimQk * 2>;
  using KRows = SwizzledRows<kHeadDimQk>;
  using VRows = SwizzledRows<kHeadDimV>;

  uint32_t queries[kRegisterQuerySteps][kRowBlocks][4];

  __device__ static uint32_t query_lane() { return row_lane<QueryRows>(); }
  __device__ static uint32_t key_lane() { return row_lane<KRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }

  __device__ static int pair_column(int lane, int n) { return n / 2 * 16 + lane % 4 * 4 + n % 2 * 2; }
  __device__ float2 pair(int b, int half, int n) const {
    return make_float2(out[b][n / 2 * 2][2 * half + n % 2], out[b][n / 2 * 2 + 1][2 * half + n % 2]);
  }

  __device__ void load_queries_to_registers(uint32_t q) {
    if constexpr (kQueriesInRegisters) {
#pragma unroll
      for (int step = 0; step < kQuerySteps; ++step) load_queries(q, step);
    }
  }

  // One load has two steps of 16 columns of 16 keys.
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
      if constexpr (!kQueriesInRegisters) {
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
          const auto& a = queries[(2 * step_pair + m / 2) % kRegisterQuerySteps];
#pragma unroll
          for (int b = 0; b < kRowBlocks; ++b)
            ptx::mma_m16n8k16(scores[b][2 * n + m % 2], a[b], low, high, __half());
        }
      }
    }
  }

  __device__ void multiply_pv(uint32_t v) {
    constexpr int kSteps = kKeys / 16, kBlocks = kHeadDimV / 32;
    uint32_t p[kRowBlocks][4], values[2][4];
    const auto load_values = [&](int i) {
      ptx::ldmatrix_x4_trans(values[i % 2],
                             VRows::advance(v, i % kBlocks * 2) + i / kBlocks * 16 * kHeadDimV);
    };
    load_values(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      this->pack_p(step, p);
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
            ptx::mma_m16n8k16(out[b][4 * n + 2 * piece], p[b], low.even, high.even, __half());
            ptx::mma_m16n8k16(out[b][4 * n + 2 * piece + 1], p[b], low.odd, high.odd, __half());
          }
        }
      }
    }
  }

 private:
  __device__ void load_queries(uint32_t q, int step) {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
      ptx::ldmatrix_x4(queries[step % kRegisterQuerySteps][b],
                       QueryRows::advance(q, step * 2) + b * 16 * kHeadDimQk * 2);
  }
};

template <class Warp>
__device__ void cap_scores(const AttentionParams& params, Warp& warp) {
  const ScoreCap cap(params);
#pragma unroll
  for (auto& block : warp.scores)
#pragma unroll
    for (auto& eight : block)
#pragma unroll
      for (float& score : eight) score = cap(score);
}

// Returns a mask of the bits below `count`.
__device__ inline uint64_t low_bits(int count) { return count <= 0 ? 0 : ~uint64_t{0} >> max(0, 64 - count); }

// Mask: sets scores of keys that a row does not see to -inf. `get_row(thread)`: row of the tile relative to
// the warp's first; `first_key`: position of the warp's first key. `kEnds`: also sets scores from position
// `end` on.
template <bool kEnds, class Warp, class RowOf>
__device__ void mask_scores(const AttentionParams& params, const WorkTileRows& rows, Warp& warp,
                            const RowOf& get_row, int first_key, int end) {
  const int first_row = get_row(ptx::tid_x());
  warp.mask([&](int row) {
    const uint64_t visible = unmasked_keys<Warp::kNumKeys>(params, rows, first_row + row, first_key);
    return kEnds ? visible & low_bits(end - first_key) : visible;
  });
}

}  // namespace attend::kernels::cuda::sm80
