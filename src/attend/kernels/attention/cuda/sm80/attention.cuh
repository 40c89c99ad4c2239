// Attention on mma.sync, for every GPU from Ampere on: query rows of one request and KV head (GQA heads
// packed with query tokens) against KV tiles of 64 keys. Rows of K and V are looked up one by one, so that
// any page size and layout is one code path. fp8 K/V are copied as they are and become f16 in registers.
//
//   tile        8, 16, 32, 64 or 128 rows x 64 keys (32 and 128 rows: head dim of V up to 128); of fp8, 8 and
//               16 rows up to head dim 128 x 128 keys
//               head dims 64/64, 128/128, 192/128, 256/256
//   warps       4, all alike: all look up and copy by cp.async, all multiply with mma.m16n8k16, of 8 rows
//               with keys as its rows. 8, 16 and 32 rows: a warp has a quarter of the keys, and the warps
//               merge in the end, on sm_90 eight CTAs of a cluster too where work tiles are few. 64 rows: 16
//               rows a warp. 128 rows: 32 rows a warp, or 8 warps of 16 at head dim 192
//   registers   168 to 255 a thread, the output accumulators among them 16 to 128. Fewer in decode would let
//               a third CTA on an SM, of the next kernel, and leave other SMs with one
//   shared      16-bit K/V, for 16 / 64 / 128 rows: 36 / 42 / 84 KB at head dim 64, 70 / 82 / 98 at 128, 88 /
//               106 / 130 at 192, 138 / 98 / - at 256; fp8: 38 / 26 / 35, 72 / 50 / 67, 48 / 66 / 91, 74 / 98
//               / -. 32 rows: 39, 75, 94; fp8 39, 75, 79. In clusters 53, 103, 88, 138 for 16 rows, 55, 107,
//               97 for 32; 8 rows as 16, less some KB. Queries, and 1 to 3 stages of a KV tile, over which
//               the output is staged
//   bytes       of a KV tile: 128 (head_dim_qk + head_dim_v), half of it in fp8
//   bound       8, 16 and 32 rows: reading K/V; 64 and 128 rows: tensor cores and the softmax's exponentials
#pragma once

#include <algorithm>
#include <type_traits>

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/meeting.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/visible.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_epilogue.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/key_major_tile.cuh"
#include "attend/kernels/attention/cuda/sm80/kv_pipeline.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_partials.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/store_new_keys.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Producer of the queries: starts the copies of a work tile's. They lie in shared memory as [kRows,
// kHeadDimQk] of 16 bits, swizzled for ldmatrix; rows beyond the request's are zero. A few neighbouring
// threads share a row.
template <int kHeadDimQk, int kRows, int kThreads>
__device__ void copy_queries(const AttentionParams& params, const WorkTileRows& rows, char* shared) {
  using Queries = SwizzledRows<kHeadDimQk * 2>;
  constexpr int kPieces = kHeadDimQk / 8, kLanes = 8, kRowsPerRound = kThreads / kLanes;
  static_assert(kPieces % kLanes == 0 && (kRows % kRowsPerRound == 0 || kRows < kRowsPerRound));
  const int first_row = static_cast<int>(threadIdx.x) / kLanes;
  if (kRows < kRowsPerRound && first_row >= kRows) return;
  const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
  const char* q = static_cast<const char*>(params.q.data);
  const uint32_t to = ptx::shared_address(shared) + Queries::offset(first_row, first_piece);
#pragma unroll
  for (int round = 0; round * kRowsPerRound < kRows; ++round) {
    const int tile_row = first_row + round * kRowsPerRound;
    const TileRow row = rows.at(params, tile_row);
    const char* from = q + rows.offset_in(params.q, row) * 2;
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += kLanes) {
      const bool valid = tile_row < rows.num_rows && (first_piece + piece) * 8 < params.head_dim_qk;
      ptx::cp_async_16(to + round * kRowsPerRound * kHeadDimQk * 2 + piece * 16,
                       valid ? from + (first_piece + piece) * 16 : q, valid);
    }
  }
}

// Queries for fp8 keys are f16, whatever they come as, in the column order of Fp8WarpTile. Powers of two take
// a row to the range of f16 and back; bf16 has 3 bits more of exponent.
struct RowScale {
  float to_f16, from_f16;
};
// For a row whose largest magnitude is `row_absmax`: that comes to lie in [2^8, 2^9), far below f16's
// largest, and what is lost is below 2^-23 of it.
__device__ inline RowScale row_scale(float row_absmax) {
  constexpr int kBias = 127, kExponent = 8;
  const int exponent =
      min(max(static_cast<int>(__float_as_uint(row_absmax) >> 23), kExponent + 1), 2 * kBias);
  return {__int_as_float((2 * kBias + kExponent - exponent) << 23),
          __int_as_float((exponent - kExponent) << 23)};
}

// Eight threads hold a row of 8 * 8 * kGroups columns; thread `lane` (of 8) its pieces of 8 columns lane,
// lane + 8, ... Writes them to row `row` at shared address `rows` and returns the scale to undo in the
// scores.
//
// Of every 16 columns, 4 c and 4 c + 1 go to places 2 c and 2 c + 1, and 4 c + 2 and 4 c + 3 to 2 c + 8 and
// 2 c + 9.
template <int kHeadDim, int kGroups>
__device__ float store_f16_queries(const float (&columns)[kGroups][kGroupElements], char* rows, int row,
                                   int lane) {
  using Rows = SwizzledRows<kHeadDim * 2>;
  float row_absmax = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
#pragma unroll
    for (float x : columns[g]) row_absmax = fmaxf(row_absmax, fabsf(x));
#pragma unroll
  for (int step = 4; step > 0; step /= 2)
    row_absmax = fmaxf(row_absmax, __shfl_xor_sync(0xffffffffu, row_absmax, step));
  const RowScale scale = row_scale(row_absmax);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    uint32_t words[kGroupElements / 2];
#pragma unroll
    for (int w = 0; w < kGroupElements / 2; ++w)
      words[w] = pack(columns[g][2 * w] * scale.to_f16, columns[g][2 * w + 1] * scale.to_f16, __half());
    const int piece = lane + 8 * g, first = piece / 2 * 2;
    *reinterpret_cast<uint2*>(rows + Rows::offset(row, first) + piece % 2 * 8) =
        make_uint2(words[0], words[2]);
    *reinterpret_cast<uint2*>(rows + Rows::offset(row, first + 1) + piece % 2 * 8) =
        make_uint2(words[1], words[3]);
  }
  return scale.from_f16;
}

// Producer of queries for fp8 keys, of 16 bits each: as copy_queries(), by way of registers, so that keys are
// on their way before queries are converted. Each row is scaled by a power of two that scale_scores() takes
// back.
template <int kHeadDimQk, int kRows, int kThreads>
class ConvertedQueries {
  static constexpr int kLanes = 8, kRowsPerRound = kThreads / kLanes, kGroups = kHeadDimQk / 8 / kLanes;
  static constexpr int kRounds = kRows < kRowsPerRound ? 1 : kRows / kRowsPerRound;
  static_assert(kHeadDimQk / 8 % kLanes == 0 && (kRows % kRowsPerRound == 0 || kRows < kRowsPerRound));

 public:
  // Starts the loads.
  __device__ void load(const AttentionParams& params, const WorkTileRows& rows) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const TileRow row = rows.at(params, tile_row(round));
      const auto* from = static_cast<const uint16_t*>(params.q.data) + rows.offset_in(params.q, row);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int column = (lane() + g * kLanes) * kGroupElements;
        bits_[round][g] = make_uint4(0, 0, 0, 0);
        if (tile_row(round) < rows.num_rows && column < params.head_dim_qk)
          bits_[round][g] = *reinterpret_cast<const uint4*>(from + column);
      }
    }
  }

  // To [kRows, kHeadDimQk] at `shared`; what scores of each row are to be multiplied by, `score_scale` among
  // it, to `row_scales`.
  __device__ void store(const AttentionParams& params, float score_scale, char* shared,
                        float* row_scales) const {
    // Whole warps.
    if (kRows < kRowsPerRound && static_cast<int>(threadIdx.x) >= kRows * kLanes) return;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      float columns[kGroups][kGroupElements];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (params.q_element == Element::kBF16)
          convert_16_bit_group<__nv_bfloat16>(bits_[round][g], columns[g]);
        else
          convert_16_bit_group<__half>(bits_[round][g], columns[g]);
      }
      const float scale = store_f16_queries<kHeadDimQk>(columns, shared, tile_row(round), lane());
      if (lane() == 0) row_scales[tile_row(round)] = scale * score_scale;
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ static int tile_row(int round) {
    return static_cast<int>(threadIdx.x) / kLanes + round * kRowsPerRound;
  }

  uint4 bits_[kRounds][kGroups];
};

// Consumer: one warp's rows against its keys of a KV tile of 16 bits. `kHeldSteps`: how many steps of 16
// elements of q are in registers at a time.
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

  // What this lane adds to the address of a block's first row, for ldmatrix_x4().
  __device__ static uint32_t query_lane() { return row_lane<QkRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }
  __device__ static uint32_t key_lane() {
    const int lane = threadIdx.x % 32;
    return QkRows::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // Of the kHeadDimV / 8 pairs of output that a lane has of a row: the first column, and the two values.
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
  // The next fragments are loaded before the present MMAs.
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
      ptx::ldmatrix_x4(queries[step % kHeldSteps][b], QkRows::advance(q, step * 2) + b * 16 * kHeadDimQk * 2);
  }
};

// As WarpTile for K and V of fp8, `kElement`. ldmatrix brings 8-bit rows as if two neighbours were one
// element of 16 bits; they become f16 in registers, and the MMAs are those of f16.
//
// So a lane gets columns 4 c to 4 c + 3 of 16 where 16-bit rows give it 2 c, 2 c + 1, 2 c + 8 and 2 c + 9:
// queries come with their columns permuted to match (store_f16_queries). Of V, one lane's pair of columns
// goes to two accumulators: of every 16 columns, the even ones are the first 8 of `out`, the odd ones the
// next 8.
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
      ptx::ldmatrix_x4(queries[step % kHeldSteps][b],
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

// Bits below `count`.
__device__ inline uint64_t low_bits(int count) { return count <= 0 ? 0 : ~uint64_t{0} >> max(0, 64 - count); }

// Mask: scores of keys that a row does not see become -inf. `row_of(thread)`: of the tile, the warp's first;
// `first_key`: position of the warp's first. `kEnds`: so do those from position `end` on.
template <bool kEnds, class Warp, class RowOf>
__device__ void mask_scores(const AttentionParams& params, const WorkTileRows& rows, Warp& warp,
                            const RowOf& row_of, int first_key, int end) {
  const int first_row = row_of(ptx::tid_x());
  warp.mask([&](int row) {
    const uint64_t visible = visible_keys<Warp::kNumKeys>(params, rows, first_row + row, first_key);
    return kEnds ? visible & low_bits(end - first_key) : visible;
  });
}

// Where a CTA leaves the fixed splits behind it while it goes on over the next one. A thread banks what it
// has of its rows, for itself alone: [pieces, kThreads] for each 16 rows of a warp, the softmax state and
// then the output accumulators. `bank`: of the plan.
template <int kHeadDimV, int kRowBlocks, int kThreads>
class SplitBank {
  static constexpr int kPieces = kHeadDimV / 8 + 1;
  static_assert(kRowBlocks * kPieces * kThreads * 4 <= split_bank_floats(kHeadDimV));

 public:
  __device__ explicit SplitBank(float* bank) : bank_(reinterpret_cast<float4*>(bank)) {}

  template <class Warp>
  __device__ void put(const Warp& warp) const {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      float4* const pieces = pieces_of(b);
      pieces[0] = make_float4(warp.row_max[b][0], warp.row_max[b][1], warp.row_sum[b][0], warp.row_sum[b][1]);
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
        pieces[(n + 1) * kThreads] =
            make_float4(warp.out[b][n][0], warp.out[b][n][1], warp.out[b][n][2], warp.out[b][n][3]);
    }
  }

  // Merges the bank, which comes first, into the warp's rows. Scores take no registers meanwhile: so many
  // loads at a time.
  template <class Warp>
  __device__ void add_to(Warp& warp, float softmax_scale_log2) const {
    constexpr int kAtOnce = 8;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      const float4* const pieces = pieces_of(b);
      const float4 state = pieces[0];
      const float row_max[2] = {state.x, state.y}, row_sum[2] = {state.z, state.w};
      MergeScales scales[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float new_max = fmaxf(row_max[half], warp.row_max[b][half]);
        scales[half] = merge_scales(row_max[half], warp.row_max[b][half], new_max, softmax_scale_log2);
        warp.row_max[b][half] = new_max;
        warp.row_sum[b][half] = merged(row_sum[half], warp.row_sum[b][half], scales[half]);
      }
#pragma unroll
      for (int first = 0; first < kHeadDimV / 8; first += kAtOnce) {
        float4 before[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) before[n] = pieces[(first + n + 1) * kThreads];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          float(&out)[4] = warp.out[b][first + n];
          out[0] = merged(before[n].x, out[0], scales[0]);
          out[1] = merged(before[n].y, out[1], scales[0]);
          out[2] = merged(before[n].z, out[2], scales[1]);
          out[3] = merged(before[n].w, out[3], scales[1]);
        }
      }
    }
  }

 private:
  __device__ float4* pieces_of(int row_block) const {
    const int cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    return bank_ + (int64_t{cta} * kRowBlocks + row_block) * kPieces * kThreads + ptx::tid_x();
  }

  float4* bank_;
};

// A CTA. `kElement`: of K and V; the MMAs are of this type, of f16 for fp8. `kFixedSplits`: the plan has
// them. `kInlinePlan`: its CTAs derive it. `kClusters`: what the plan calls a CTA is a cluster, whose CTAs
// share the keys.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kInlinePlan,
          bool kClusters>
class AttentionCta {
  static constexpr bool kFp8 = is_fp8(kElement);
  using T = std::conditional_t<kElement == Element::kBF16, __nv_bfloat16, __half>;
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kFp8, kTileRows, kClusters>;
  static_assert(!kFixedSplits || Config::kWarpsN == 1, "warps that share rows add in another order");
  // Where a taller tile takes many rows, this one may leave warps without any.
  static constexpr bool kMayHaveIdleWarps = kTileRows == 64 && max_tile_rows(kHeadDimV) == 128;
  // An SM that has one CTA alone copies beside the softmax what else QK^T would wait for.
  static constexpr bool kCopiesBehindQk = kClusters && Config::kStages == 3;
  // Tall tiles have no registers for more, and few partial results; nor have tiles that hold many queries
  // (kHoldsMany) for keys of fp8 and derive a plan.
  static constexpr bool kHoldsMany =
      kTileRows == 16 ? kHeadDimQk == 128 : kTileRows == kKeyMajorRows && kHeadDimQk == 192;
  static constexpr bool kMergesFew = kTileRows == 128 || (kFp8 && kInlinePlan && kHoldsMany);
  static constexpr int kMergeAtOnce = kMergesFew ? 8 : merge_at_once(kHeadDimV);
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kKeys = Config::kKeys;
  static constexpr int kKeysPerWarp = kKeys / Config::kWarpsN;
  static constexpr int kBytes = kFp8 ? 1 : 2;
  // Fixed splits may end between two key tiles.
  static constexpr int kTilesPerStage = kFixedSplits ? 1 : Config::kTilesPerStage;
  static constexpr int kStageKeys = kKeys * kTilesPerStage;
  using Pipeline = KvPipeline<kHeadDimQk, kHeadDimV, kBytes, kStageKeys, kThreads, Config::kStages,
                              Config::kFillsAllStages, Config::kDecode>;
  using RowMajorWarp = std::conditional_t<
      kFp8,
      Fp8WarpTile<kElement, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kHeldSteps>,
      WarpTile<T, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kHeldSteps>>;
  using KeyMajorWarp =
      std::conditional_t<kFp8, Fp8KeyMajorTile<kElement, kHeadDimQk, kHeadDimV, kKeysPerWarp>,
                         KeyMajorTile<T, kHeadDimQk, kHeadDimV, kKeysPerWarp>>;
  using Warp = std::conditional_t<kRows == kKeyMajorRows, KeyMajorWarp, RowMajorWarp>;
  using Epilogue = AttentionEpilogue<T, Config, kHeadDimV, Warp, kClusters>;

  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  // The epilogue's staging lies over the stages.
  static constexpr int kFullKeysAt =
      kQueryBytes +
      (Pipeline::kSharedBytes > Epilogue::kSharedBytes ? Pipeline::kSharedBytes : Epilogue::kSharedBytes);
  static constexpr int kWorkTileRowsAt = kFullKeysAt + static_cast<int>(sizeof(KeyRange));
  static constexpr int kRowScalesAt = kWorkTileRowsAt + static_cast<int>(sizeof(WorkTileRows));

  // Tall tiles have no registers for it; their requests have several.
  static_assert(!kInlinePlan || (kTileRows <= 64 && !kFixedSplits));
  using Plan = CtaPlan<kThreads, kInlinePlan>;
  // Of a request's only row tile.
  static constexpr bool kStoresNewKeys = kInlinePlan && !kFp8;

 public:
  static constexpr int kSharedBytes = kRowScalesAt + (kFp8 ? kRows * static_cast<int>(sizeof(float)) : 0);

  __device__ AttentionCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), pipeline_(params, shared + kQueryBytes) {}

  __device__ void run() {
    const bool prefetches_prefix = Config::kPrefetchesPrefix && params_.prefix_ready;
    if (!prefetches_prefix) sync_with_previous_kernel();
    const Plan plan(params_);
    const int cta = kClusters ? ptx::cluster_id() : static_cast<int>(blockIdx.x);
    const PlanStart start = plan.start(cta);
    if (!prefetches_prefix) write_padding(params_, start.header.num_tokens);
    bool prefetches = prefetches_prefix;
    walk_plan<kFixedSplits>(params_, plan, cta, start,
                            [&](const RowTile& tile, int head, const KvTileRange& range) {
                              const WorkTileRows rows(params_, tile, head, kRows);
                              attend(rows, tile, range, prefetches);
                              prefetches = false;
                              if (range.partial_idx >= 0 && params_.plan.ctas_merge)
                                finish_work_tile(plan, rows, tile, range);
                            });
    if (prefetches_prefix) {
      if (prefetches) ptx::griddepcontrol_wait();
      write_padding(params_, params_.batch.cu_seqlen_q[params_.batch.num_reqs]);
    }
    if constexpr (!Config::kDecode) ptx::launch_dependents();
  }

 private:
  // Decode leaves most of an SM's registers and shared memory free: the next kernel may prefetch beside it.
  __device__ static void sync_with_previous_kernel() {
    ptx::griddepcontrol_wait();
    if constexpr (Config::kDecode) ptx::launch_dependents();
  }

  // After a partial result of the work tile: merges all of them if this was the last to be written.
  __device__ void finish_work_tile(const Plan& plan, const WorkTileRows& rows, const RowTile& tile,
                                   const KvTileRange& range) {
    const PartialResults partials = partials_of<kFixedSplits>(params_.plan, tile, rows.head, plan.line());
    int32_t* const num_done = params_.plan.partials_done + tile.index * params_.num_kv_heads + rows.head;
    const auto row_of = [&](int tile_row) {
      const TileRow row = rows.at(params_, tile_row);
      return OutputRow{rows.span.first_token + row.query, row.head};
    };
    const int num_new = kFixedSplits ? range.count : 1;
    const int num_ctas = partials.count * (kClusters ? kClusterSize : 1);
    if constexpr (Config::kDecode) {
      if (plan.line().exclusive) {
        Meeting meeting(num_done, num_ctas, rows.num_rows, params_.plan.meeting_clocks);
        const RowShare share = meet<WholeCta>(meeting);
        RowMerge<kHeadDimV, kThreads>(params_, partials, meeting.rows_of_share(),
                                      reinterpret_cast<float*>(shared_ + kQueryBytes))
            .merge(share, row_of);
        if (threadIdx.x == 0) meeting.end();
        return;
      }
    }
    if (complete_partials(num_done, num_new, num_ctas))
      merge_partials<kHeadDimV, kThreads, kMergeAtOnce>(params_, partials, 0, rows.num_rows, row_of);
  }

  // `prefetches`: the kernel before has not ended. Keys of the prefix are loaded at once, what it may still
  // write after griddepcontrol_wait().
  __device__ void attend(const WorkTileRows& work_tile, RowTile tile, const KvTileRange& range,
                         bool prefetches) {
    const BatchParams& batch = params_.batch;
    const int last_query = work_tile.at(params_, work_tile.num_rows - 1).query;
    if (batch.window_left >= 0 || batch.chunk > 0)
      narrow(tile, key_range(batch, work_tile.span, work_tile.first_query, last_query));
    // The plan may be one of a layer without a window: keys outside of this layer's window are not read.
    const int kv_tile_keys = params_.plan.kv_tile_keys;
    const int range_begin = (tile.first_kv_tile + range.first) * kv_tile_keys;
    int first_position = max(range_begin, tile.kv_begin / kKeys * kKeys);
    int range_end = min(range_begin + range.count * kv_tile_keys, tile.kv_end);
    if constexpr (kClusters) {
      constexpr int kKeysOfRound = kClusterSize * kKeys;
      const int share = max(0, range_end - first_position + kKeysOfRound - 1) / kKeysOfRound * kKeys;
      first_position += ptx::cluster_rank() * share;
      range_end = min(range_end, first_position + share);
    }
    const int num_stages = max(0, (range_end - first_position + kStageKeys - 1) / kStageKeys);
    pipeline_.aim(tile, work_tile.head, first_position, range_end, num_stages);
    // Before locate(), behind whose barrier they are read.
    if (kStoresNewKeys && params_.batch.seqlen_new > 0)
      store_new_keys<kThreads>(params_, tile.request, tile.seqlen_kv, work_tile.head, first_position,
                               range_end);
    int num_filled = 0;
    if (Config::kPrefetchesPrefix && prefetches) {
      pipeline_.locate();
      num_filled = pipeline_.fill_before(work_tile.span.prefix());
      ptx::griddepcontrol_wait();
    }
    const auto descale = [&](const HeadScaleParams& scales) {
      // Tall tiles have no registers for them.
      return kFp8 && Config::kDecode ? scale_of(scales, tile.request, work_tile.head) : 1.0f;
    };
    const float value_scale = descale(params_.v_scales);
    ConvertedQueries<kHeadDimQk, kRows, kThreads> queries;
    float score_scale = 1.0f;
    if constexpr (kFp8) {
      queries.load(params_, work_tile);
      score_scale = descale(params_.q_scales) * descale(params_.k_scales);
    } else {
      copy_queries<kHeadDimQk, kRows, kThreads>(params_, work_tile, shared_);
    }
    // Pages are on their way meanwhile. Behind the barrier of locate() it is read.
    if (threadIdx.x == 0) find_full_keys(work_tile, last_query);
    if (!Config::kPrefetchesPrefix || !prefetches)
      pipeline_.locate();
    else if (kFixedSplits)
      __syncthreads();
    pipeline_.fill(num_filled);
    // After these copies are issued: the next kernel's come before later ones of this.
    if (Config::kDecode && prefetches) ptx::launch_dependents();
    // Read behind the barrier of the first tile.
    if constexpr (kFp8) queries.store(params_, score_scale, shared_, row_scales());
    const WorkTileRows& rows = kFixedSplits ? shared_rows() : work_tile;

    Warp warp;
    warp.clear();
    const float softmax_scale_log2 = softmax_scale_log2_of(params_);
    const uint32_t q = ptx::shared_address(shared_) +
                       static_cast<uint32_t>(warp_row<Config>(threadIdx.x) * kHeadDimQk * 2) +
                       Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kHeadDimQk * kBytes) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(warp_key() * kHeadDimV * kBytes) + Warp::value_lane();
    const bool has_rows = !kMayHaveIdleWarps || warp_row<Config>(threadIdx.x) < rows.num_rows;
    int i = 0;
    const int num_splits = kFixedSplits ? range.count : 1;
    for (int split = 0; split < num_splits; ++split) {
      const int split_end = range_begin + (split + 1) * kv_tile_keys;
      const int end = kFixedSplits ? min(num_stages, (split_end - first_position) / kStageKeys) : num_stages;
      for (; i < end; ++i) {
        pipeline_.wait(i);
        if (i == 0) warp.hold_queries(q);
        if constexpr (kCopiesBehindQk)
          pipeline_.look_up_next(i);
        else
          pipeline_.refill(i);
        if (!has_rows) {
          pipeline_.wait_for_values(i);
          pipeline_.publish_next(i);
          continue;
        }
#pragma unroll 1
        for (int t = 0; t < kTilesPerStage; ++t) {
          const int first_key = pipeline_.first_position(i) + t * kKeys;
          if (kTilesPerStage > 1 && first_key >= range_end) break;
          const uint32_t k = pipeline_.k(i) + in_k + static_cast<uint32_t>(t * kKeys * kHeadDimQk * kBytes);
          compute_p(rows, warp, q, k, softmax_scale_log2, i, first_key, i == 0 && t == 0);
          if (t == 0) pipeline_.publish_next(i);
          warp.multiply_pv(pipeline_.v(i) + in_v + static_cast<uint32_t>(t * kKeys * kHeadDimV * kBytes));
        }
      }
      warp.finish_sums();
      const bool last = split + 1 == num_splits;
      if constexpr (kFixedSplits) {
        const SplitBank<kHeadDimV, Config::kRowBlocks, kThreads> bank(params_.plan.split_bank);
        const bool banks = has_rows && range.partial_idx < 0;
        if (banks && split > 0) bank.add_to(warp, softmax_scale_log2);
        if (banks && !last) bank.put(warp);
      }
      if (last) ptx::cp_async_wait_group<0>();
      if (range.partial_idx >= 0 || last)
        Epilogue(params_, rows, value_scale, shared_ + kQueryBytes)
            .write(warp, softmax_scale_log2, range.partial_idx < 0 ? -1 : range.partial_idx + split);
      if (!last) warp.clear();
    }
  }

  // P of the key tile from `first_key` on, in stage i: QK^T, mask, softmax. `first`: of the work tile.
  __device__ void compute_p(const WorkTileRows& rows, Warp& warp, uint32_t q, uint32_t k,
                            float softmax_scale_log2, int i, int first_key, bool first) {
    if constexpr (Config::kStaleMax && !kFixedSplits) {
      bool raises = first;
      uint32_t rows_to_raise = ~0u;
      while (true) {
        warp.multiply_qk(q, k);
        finish_scores(rows, warp, first_key);
        if (raises) warp.raise_row_max(softmax_scale_log2, rows_to_raise);
        if (warp.softmax_with_stale_max(softmax_scale_log2, raises, rows_to_raise)) return;
        raises = true;
      }
    } else {
      warp.multiply_qk(q, k);
      if constexpr (kCopiesBehindQk) pipeline_.start_copies(i);
      pipeline_.wait_for_values(i);
      finish_scores(rows, warp, first_key);
      warp.softmax(softmax_scale_log2);
    }
  }

  // Scale, cap and mask of the scores.
  __device__ void finish_scores(const WorkTileRows& rows, Warp& warp, int first_key) {
    // Takes back what rows of ConvertedQueries are scaled with.
    if constexpr (kFp8) warp.scale_scores(row_scales() + warp_row<Config>(threadIdx.x));
    if (params_.logit_cap > 0.0f) cap_scores(params_, warp);
    const KeyRange full = full_keys();
    // A tile of several key tiles may end behind the CTA's range.
    constexpr bool kEnds = Config::kTwoKeyTiles;
    const int end = kEnds ? min(full.end, pipeline_.end()) : full.end;
    if (first_key < full.begin || first_key + kKeys > end)
      mask_scores<kEnds>(params_, rows, warp, warp_row<Config>, first_key + warp_key(), pipeline_.end());
  }

  __device__ static int warp_key() {
    return static_cast<int>(threadIdx.x) / 32 % Config::kWarpsN * kKeysPerWarp;
  }

  // Those that every row of the tile sees. By one thread.
  __device__ void find_full_keys(const WorkTileRows& rows, int last_query) const {
    const BatchParams& batch = params_.batch;
    KeyRange full{0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      full = full_key_range(batch, rows.span, rows.first_query, last_query);
    full_keys() = full;
    if (kFixedSplits) shared_rows() = rows;
  }
  // In shared memory, where they take no registers from the accumulators.
  __device__ WorkTileRows& shared_rows() const {
    return *reinterpret_cast<WorkTileRows*>(shared_ + kWorkTileRowsAt);
  }
  __device__ KeyRange& full_keys() const { return *reinterpret_cast<KeyRange*>(shared_ + kFullKeysAt); }

  __device__ float* row_scales() const { return reinterpret_cast<float*>(shared_ + kRowScalesAt); }

  const AttentionParams& params_;
  char* shared_;
  Pipeline pipeline_;
};

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kInlinePlan,
          bool kClusters>
__global__ void __launch_bounds__(
    TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows, kClusters>::kThreads,
    TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows, kClusters>::kCtasPerSm)
    attention_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kInlinePlan, kClusters>(params,
                                                                                                 shared)
      .run();
}

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kInlinePlan,
          bool kClusters>
void launch_tile(const AttentionParams& params, int num_row_tiles, void* stream) {
  constexpr auto kKernel =
      attention_kernel<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kInlinePlan, kClusters>;
  constexpr int kSharedBytes = AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits,
                                            kInlinePlan, kClusters>::kSharedBytes;
  static_assert(
      kSharedBytes ==
      config_shared_bytes<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows, kFixedSplits, kClusters>());
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  // Fixed splits: no more CTAs than there are banks.
  if (kFixedSplits)
    num_row_tiles = std::min(num_row_tiles, std::max(1, params.plan.num_ctas / params.num_kv_heads));
  constexpr int kCtasOfPlanned = kClusters ? kClusterSize : 1;
  const dim3 grid = params.plan.streamed ? dim3(static_cast<unsigned>(params.plan.num_ctas * kCtasOfPlanned))
                                         : dim3(static_cast<unsigned>(num_row_tiles),
                                                static_cast<unsigned>(params.num_kv_heads));
  constexpr int kThreads = TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kThreads;
  launch_dependent<AttentionParams>(kKernel, grid, kThreads, kSharedBytes, stream, params, "attention",
                                    kCtasOfPlanned);
}

// One dtype and head dims, over all tile heights. The plan never has 8 to 32 rows with fixed splits, nor
// more rows than max_tile_rows(); CTAs derive it for up to 64 rows. Clusters are of decode alone.
template <Element kElement, int kHeadDimQk, int kHeadDimV>
void launch_instance(const AttentionParams& params, int num_row_tiles, void* stream) {
  const PlanView& plan = params.plan;
  const auto
      launch = [&]<int kTileRows, bool kFixedSplits, bool kInlinePlan = false, bool kClusters = false>() {
    return launch_tile<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kInlinePlan, kClusters>(
        params, num_row_tiles, stream);
  };
  const auto launch_planned = [&]<int kTileRows, bool kClusters = false>() {
    plan.inline_plan ? launch.template operator()<kTileRows, false, true, kClusters>()
                     : launch.template operator()<kTileRows, false, false, kClusters>();
  };
  const bool fixed_splits = plan.split_bank != nullptr;
  if (plan.tile_rows == kKeyMajorRows)
    return plan.cluster_size > 1 ? launch_planned.template operator()<kKeyMajorRows, true>()
                                 : launch_planned.template operator()<kKeyMajorRows>();
  if (plan.tile_rows == 16)
    return plan.cluster_size > 1 ? launch_planned.template operator()<16, true>()
                                 : launch_planned.template operator()<16>();
  if constexpr (max_tile_rows(kHeadDimV) == 128) {
    if (plan.tile_rows == 32)
      return plan.cluster_size > 1 ? launch_planned.template operator()<32, true>()
                                   : launch_planned.template operator()<32>();
    if (plan.tile_rows == 128)
      return fixed_splits ? launch.template operator()<128, true>()
                          : launch.template operator()<128, false>();
  }
  fixed_splits ? launch.template operator()<64, true>() : launch_planned.template operator()<64>();
}

}  // namespace attend::kernels::cuda::sm80
