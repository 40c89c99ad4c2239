// Register state of a consumer of prefill on sm_90a (prefill.cuh): products and online softmax.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_softmax.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Scales of the scores of a thread's rows ([half]: one for each of its two rows), for a softmax with
// exponentials of base 2.
struct SameScale {
  float scale;
  __device__ __forceinline__ float operator[](int) const { return scale; }
};
struct RowScales {
  float scales[2];
  __device__ __forceinline__ float operator[](int half) const { return scales[half]; }
};

struct PrefillPrecision {
  static constexpr float kSlack = 8.0f, kOffset = 0.0f, kUnscale = 1.0f;  // 2^-kOffset
};
// Precision for f16 P if queries may be bf16: P is scaled up so that values much smaller than a row's largest
// remain representable in f16.
struct PrefillF16Precision {
  static constexpr float kSlack = 8.0f, kOffset = 7.0f, kUnscale = 0x1p-7f;
};
template <class Tile>
using PrefillPrecisionOf = std::conditional_t<Tile::kConvertsKv, PrefillF16Precision, PrefillPrecision>;

// A consumer warpgroup's 64 rows in registers, with P and, with fixed splits, queries. Element [4 n + 2 half
// + i] of out is in column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows : PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillPrecisionOf<Tile>> {
  using Precision = PrefillPrecisionOf<Tile>;
  using Softmax = PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, Precision>;
  using Softmax::scores, Softmax::out, Softmax::row_max, Softmax::row_sum, Softmax::rescale, Softmax::shifts,
      Softmax::rescales, Softmax::kOffset;

  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kHeadDimV;

  // Queries in registers: KV tiles of 64 keys would read queries from shared memory as often as keys.
  static constexpr bool kQueriesInRegisters = Tile::kFixedSplits;
  static constexpr int kQuerySteps = Tile::kHeadDimQk / 16;

  // Largest sum of a lane's P of a row. A larger sum raises the row max, so that P stays within 16 bits.
  static constexpr float kMaxSum = 256.0f / Precision::kUnscale;
  // Sums above this are too close to infinity to be scaled.
  static constexpr float kMaxScaledSum = 0x1p64f;

  uint32_t queries[kQueriesInRegisters ? kQuerySteps : 1][4];  // operand A of wgmma with K
  uint32_t p[kSteps][4];                                       // operand A of wgmma with V

  // Called before the first multiply_keys(), with its `q`.
  __device__ __forceinline__ void load_queries_to_registers(uint32_t q) {
    if constexpr (kQueriesInRegisters) {
      constexpr int kStepsPerPanel = kPanelColumns / 16;
      const int lane = ptx::lane(), row = ptx::warp_in_warpgroup() * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < kQuerySteps; ++i)
        ptx::ldmatrix_x4(queries[i], q + i / kStepsPerPanel * Tile::kQueryPanelBytes +
                                         swizzled(row, i % kStepsPerPanel * 2 + lane / 16));
    }
  }

  // Returns the descriptor of an address `bytes` later, with a 32-bit addition: there are few uniform
  // registers, and instructions between two wgmma cost time.
  __device__ __forceinline__ static uint64_t descriptor_at(uint64_t first, int bytes) {
    return (first & 0xffffffff00000000) | (static_cast<uint32_t>(first) + static_cast<uint32_t>(bytes / 16));
  }

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsPerPanel = kPanelColumns / 16, kStepBytes = 32;
    // Keeps the compiler from holding descriptors of all steps in registers between KV tiles.
    asm volatile("" : "+r"(q));
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      const int panel = i / kStepsPerPanel, in_panel = i % kStepsPerPanel * kStepBytes;
      const uint64_t keys = descriptor_at(b, panel * Tile::kKeyPanelBytes + in_panel);
      if constexpr (kQueriesInRegisters)
        ptx::wgmma_mma_async_rs_k_major(scores, queries[i], keys, i > 0, T());
      else
        ptx::wgmma_mma_async(scores, descriptor_at(a, panel * Tile::kQueryPanelBytes + in_panel), keys, i > 0,
                             T());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v, or without `add` out = P v, over all keys of the tile. Keys outside of the work tile
  // are zeros in P and v: with branches around them ptxas serializes the products (its note C7520).
  __device__ __forceinline__ void multiply_values(uint32_t v, bool add) {
    constexpr int kStepBytes = 16 * kPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, add || step > 0, T());
    ptx::wgmma_commit_group();
  }

  // Computes the row max, P and its sum of the first KV tile.
  template <class Scales>
  __device__ __forceinline__ void begin(const Scales& scales) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = quad_max(thread_max(half));
      row_sum[half] = 0.0f;
      rescale[half] = 0.0f;
      shifts[half] = row_max[half] == -INFINITY ? Softmax::kNoMaxShift
                                                : __fmul_rn(row_max[half], scales[half]) - kOffset;
    }
    exponentiate(scales);
  }

  // Second half of the softmax: replaces scores by P = 2^(kOffset + scale (score - row_max)).
  template <class Scales>
  __device__ __forceinline__ void exponentiate(const Scales& scales) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two chains of sums are faster; fixed splits have one, like sm80's kernel.
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * scales[half] - shifts[half]);
          sums[Tile::kFixedSplits ? 0 : i] += score;
        }
      row_sum[half] = row_sum[half] * rescale[half] + (sums[0] + sums[1]);
    }
  }

  // Online softmax in one step that does not wait for the row max: computes P relative to the row max of the
  // previous KV tiles. If a lane's part of a row then has a sum above kMaxSum, the row max is raised. `score`
  // computes the scores again.
  template <class Scales, class Score, class WaitForOut>
  __device__ __forceinline__ void exponentiate_with_stale_max(const Scales& scales, const Score& score,
                                                              const WaitForOut& wait_for_out) {
    float sums[2][2] = {};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = scores[4 * n + 2 * half + i];
          x = ptx::ex2_approx(x * scales[half] - shifts[half]);
          sums[half][i] += x;
        }
    float tile_sum[2] = {sums[0][0] + sums[0][1], sums[1][0] + sums[1][1]};
    if (__any_sync(0xffffffffu, tile_sum[0] > kMaxSum || tile_sum[1] > kMaxSum)) [[unlikely]]
      raise_p_max(scales, tile_sum, score, wait_for_out);
#pragma unroll
    for (int half = 0; half < 2; ++half) row_sum[half] += tile_sum[half];
  }

  // Raises the row max of rows with a sum above kMaxSum. P is scaled to the new row max. If P may have
  // overflowed, as in a row without a previous max, it is computed again from its score. The warp's other
  // rows are then computed again too, also if a row past the work tile's last row caused it. So the bits of a
  // row depend on this row only as long as mma.sync and wgmma add in the same order (deterministic.md), which
  // held on all tested devices.
  template <class Scales, class Score, class WaitForOut>
  __device__ __forceinline__ void raise_p_max(const Scales& scales, float (&tile_sum)[2], const Score& score,
                                              const WaitForOut& wait_for_out) {
    // 0 if P overflows. A register holds this, since there are few predicates.
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rescale[half] = quad_max(tile_sum[half]) > kMaxScaledSum ? 0.0f : 1.0f;
    if (__any_sync(0xffffffffu, rescale[0] == 0.0f || rescale[1] == 0.0f)) {
      score();
#pragma unroll
      for (int half = 0; half < 2; ++half) tile_sum[half] = exponentiate_again(half, scales[half]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale_p(half, scales[half], tile_sum[half]);
      row_sum[half] *= rescale[half];
    }
    wait_for_out();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }
  // Computes P from scores again, relative to their max if P has overflowed. Returns the sum of P.
  __device__ __forceinline__ float exponentiate_again(int half, float scale) {
    const float new_max = quad_max(thread_max(half));
    if (rescale[half] == 0.0f) raise_max_to(half, new_max, scale);
    float sums[2] = {};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = scores[4 * n + 2 * half + i];
        x = ptx::ex2_approx(x * scale - shifts[half]);
        sums[i] += x;
      }
    return sums[0] + sums[1];
  }
  // Scales P of a row with a sum above kMaxSum, and this sum, to the max of P.
  __device__ __forceinline__ void scale_p(int half, float scale, float& tile_sum) {
    const bool raises = quad_max(tile_sum) > kMaxSum;
    const float maximum = quad_max(thread_max(half));
    float p_scale = 1.0f;
    if (raises) {
      raise_max_to(half, row_max[half] + __fdividef(__log2f(maximum) - kOffset, scale), scale);
      p_scale = rescale[half];
    }
    tile_sum *= p_scale;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) scores[4 * n + 2 * half + i] *= p_scale;
  }
  __device__ __forceinline__ float thread_max(int half) const {
    float maximum = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      maximum = fmaxf(maximum, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
    return maximum;
  }
  __device__ __forceinline__ void raise_max_to(int half, float new_max, float scale) {
    const float shift = __fmul_rn(new_max, scale);
    rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], scale) - shift);
    row_max[half] = new_max;
    shifts[half] = shift - kOffset;
  }

  // Computes the scores of multiply_keys() with mma.sync: each warp computes its own rows.
  __device__ __forceinline__ void multiply_keys_by_warp(uint32_t q, uint32_t k) {
    constexpr int kStepsPerPanel = kPanelColumns / 16;
    const int lane = ptx::lane(), row = ptx::warp_in_warpgroup() * 16 + lane % 16;
    const int key = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (float& score : scores) score = 0.0f;
#pragma unroll 1
    for (int i = 0; i < kQuerySteps; ++i) {
      const uint32_t q_panel = q + i / kStepsPerPanel * Tile::kQueryPanelBytes,
                     k_panel = k + i / kStepsPerPanel * Tile::kKeyPanelBytes;
      const int piece = i % kStepsPerPanel * 2;
      uint32_t a[4];
      ptx::ldmatrix_x4(a, q_panel + swizzled(row, piece + lane / 16));
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, k_panel + swizzled(16 * n + key, piece + lane / 8 % 2));
        auto* const columns = reinterpret_cast<float(*)[4]>(&scores[8 * n]);
        ptx::mma_m16n8k16(columns[0], a, b[0], b[1], T());
        ptx::mma_m16n8k16(columns[1], a, b[2], b[3], T());
        __syncwarp();  // keeps ptxas from allocating registers of later products early
      }
    }
  }

  // Sends the scores to the other CTA of the cluster, in which they have address `to` and whose `barrier`
  // counts them.
  __device__ __forceinline__ void send_scores(uint32_t to, uint32_t barrier) const {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i)
      ptx::st_async_16(to + (i * 32 + ptx::lane()) * 16, scores[4 * i], scores[4 * i + 1], scores[4 * i + 2],
                       scores[4 * i + 3], barrier);
  }
  // Adds the scores that the other CTA has sent.
  __device__ __forceinline__ void add_scores(uint32_t from) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      const uint4 bits = ptx::ld_shared_16(from + (i * 32 + ptx::lane()) * 16);
      scores[4 * i] += __uint_as_float(bits.x);
      scores[4 * i + 1] += __uint_as_float(bits.y);
      scores[4 * i + 2] += __uint_as_float(bits.z);
      scores[4 * i + 3] += __uint_as_float(bits.w);
    }
  }

  // Called after exponentiate(), when PV of the previous KV tile has ended.
  __device__ __forceinline__ void rescale_and_pack_p() {
    if (rescales) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
    pack_p();
  }
  // Defines P for a product that is not read.
  __device__ __forceinline__ void clear_p() {
#pragma unroll
    for (auto& step : p)
#pragma unroll
      for (uint32_t& pair : step) pair = 0;
  }
  __device__ __forceinline__ void pack_p() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Sums row sums over all columns and removes the factor 2^kOffset of P. Called once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = quad_sum(s) * Precision::kUnscale;
  }
};

// Conversion of bf16 queries for products with fp8 K/V that are converted to f16 (prefill.cuh): each row is
// scaled by a power of two, since bf16 has three exponent bits more than f16.

// Returns the scale that maps a row's largest magnitude `row_absmax` to [2^8, 2^9), far below f16's largest
// value, and the inverse, for the scores. Elements lose bits below 2^-24 of the scaled row, 2^-32 of its
// largest; in rows with a largest magnitude below 2^-32, bits below 2^-64.
struct QueryScale {
  float to_f16, from_f16;
};
__device__ __forceinline__ QueryScale query_scale(float row_absmax) {
  constexpr int kBias = 127, kExponent = 8, kLeast = kBias - 32;
  const int exponent = min(max(static_cast<int>(__float_as_uint(row_absmax) >> 23), kLeast), 2 * kBias);
  return {__int_as_float((2 * kBias + kExponent - exponent) << 23),
          __int_as_float((exponent - kExponent) << 23)};
}

// Returns `scaled` / `scale`. Both are normal and their ratio is a power of two, or both are zero (returns
// 1).
__device__ __forceinline__ float power_of_two_between(float scale, float scaled) {
  return __int_as_float(__float_as_int(scaled) - __float_as_int(scale) + __float_as_int(1.0f));
}

// Converts the 16 rows of a consumer warp in place. `q`: the warpgroup's first row. Returns the factors of
// scores of the thread's rows (PrefillSoftmax).
template <class Tile>
__device__ __forceinline__ RowScales queries_to_f16(uint32_t q) {
  // Four lanes read a row, each two pieces of 16 bytes of a panel. Odd rows begin with the other half of the
  // panel than even rows, so that neighboring rows use different banks.
  constexpr int kPieces = 2 * Tile::kQkPanels;
  const int lane = ptx::lane();
  RowScales from_f16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = ptx::warp_in_warpgroup() * 16 + lane / 4 + 8 * half;
    const uint32_t at[2] = {q + swizzled(row, lane % 4 + row % 2 * 4),
                            q + swizzled(row, lane % 4 + 4 - row % 2 * 4)};
    const auto address = [&](int piece) { return at[piece % 2] + piece / 2 * Tile::kQueryPanelBytes; };
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) pieces[i] = ptx::ld_shared_16(address(i));
    __nv_bfloat162 absmax = __float2bfloat162_rn(0.0f);
    const auto update_absmax = [&](uint32_t pair) {
      absmax = __hmax2(absmax, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&pair)));
    };
#pragma unroll
    for (const uint4& piece : pieces) {
      update_absmax(piece.x);
      update_absmax(piece.y);
      update_absmax(piece.z);
      update_absmax(piece.w);
    }
    const QueryScale scale = query_scale(quad_max(fmaxf(__low2float(absmax), __high2float(absmax))));
    from_f16.scales[half] = scale.from_f16;
    const auto to_f16 = [&](uint32_t pair) {
      return pack(__uint_as_float(pair << 16) * scale.to_f16,
                  __uint_as_float(pair & 0xffff0000u) * scale.to_f16, __half());
    };
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      ptx::st_shared_16(address(i), make_uint4(to_f16(pieces[i].x), to_f16(pieces[i].y), to_f16(pieces[i].z),
                                               to_f16(pieces[i].w)));
  }
  return from_f16;
}

// Fixed splits of prefill on sm_90a (prefill.cuh): merged in the order of keys, like in sm80's kernel.

// A thread's row state and output over the splits that have ended; those of the current split are in Rows.
template <class Rows>
class PrefillSplits {
  static constexpr int kPieces = Rows::kColumns / 8, kStride = 128;

 public:
  // `out`: this thread's accumulators of the splits in shared memory.
  __device__ __forceinline__ PrefillSplits(float4* out, int first_key, int keys_per_split)
      : out_(out), end_((first_key / keys_per_split + 1) * keys_per_split) {}

  // Called before the scores of the KV tile that begins at `first_key`. Returns true if a new split begins
  // there.
  __device__ __forceinline__ bool ends_before(int first_key, int keys_per_split, Rows& rows) {
    if (first_key < end_) return false;
    end_ += keys_per_split;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      split_row_max_[half] = rows.row_max[half];
      split_row_sum_[half] = rows.row_sum[half];
      rows.row_max[half] = -INFINITY;
      rows.row_sum[half] = 0.0f;
    }
    return true;
  }

  // Called after ends_before() returned true, when rows.out contains all P V of the split that ended. Clears
  // rows.out.
  __device__ __forceinline__ void add_finished_split(Rows& rows, float softmax_scale_log2) {
#pragma unroll
    for (float& sum : split_row_sum_) sum = quad_sum(sum);
    merge(split_row_max_, split_row_sum_, rows.out, softmax_scale_log2);
#pragma unroll
    for (int n = 0; n < kPieces; ++n)
      out_[n * kStride] =
          make_float4(rows.out[4 * n], rows.out[4 * n + 1], rows.out[4 * n + 2], rows.out[4 * n + 3]);
    is_empty_ = false;
#pragma unroll
    for (float& x : rows.out) x = 0.0f;
  }

  // Adds the last split after its finish_sums(): rows become the result of all splits.
  __device__ __forceinline__ void finish(Rows& rows, float softmax_scale_log2) {
    merge(rows.row_max, rows.row_sum, rows.out, softmax_scale_log2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.row_max[half] = row_max_[half];
      rows.row_sum[half] = row_sum_[half];
    }
  }

 private:
  // Merges a split with the previous ones, in this order. `out`: input is the added split, output the merged
  // result.
  __device__ __forceinline__ void merge(const float (&partial_max)[2], const float (&partial_sum)[2],
                                        float (&out)[Rows::kColumns / 2], float softmax_scale_log2) {
    if (is_empty_) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max_[half] = partial_max[half];
        row_sum_[half] = partial_sum[half];
      }
      return;
    }
    MergeScales scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_max = fmaxf(row_max_[half], partial_max[half]);
      scales[half] = merge_scales(row_max_[half], partial_max[half], new_max, softmax_scale_log2);
      row_max_[half] = new_max;
      row_sum_[half] = merged(row_sum_[half], partial_sum[half], scales[half]);
    }
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float4 before = out_[n * kStride];
      out[4 * n] = merged(before.x, out[4 * n], scales[0]);
      out[4 * n + 1] = merged(before.y, out[4 * n + 1], scales[0]);
      out[4 * n + 2] = merged(before.z, out[4 * n + 2], scales[1]);
      out[4 * n + 3] = merged(before.w, out[4 * n + 3], scales[1]);
    }
  }

  float4* const out_;
  float row_max_[2], row_sum_[2];
  // State of the split that ended; its P V may still be in flight.
  float split_row_max_[2], split_row_sum_[2];
  bool is_empty_ = true;
  int end_;  // end of the current split: the first key of the next
};
struct NoPrefillSplits {
  __device__ NoPrefillSplits(float4*, int, int) {}
};

// Epilogue of prefill on sm_90a (prefill.cuh): writes results of a work tile as output or as partial results.

// `T`: type of 16-bit results.
template <class T, class Rows, class Tile>
class PrefillEpilogue : PrefillResults {
  static constexpr int kGroups = Rows::kColumns / 8;  // groups of eight columns

 public:
  // `scale`: factor of this work tile's results, in addition to the factor common to all work tiles.
  __device__ PrefillEpilogue(const AttentionParams& params, const WorkTileRows& rows, int warpgroup,
                             float scale)
      : PrefillResults(params, rows, prefill_row<Tile>(warpgroup)), scale_(scale) {}

  using PrefillResults::write_lse;

  // Called after finish_sums() by all threads of a warp with 16 valid rows. Writes results without LSE as
  // panels in shared memory. `to`: the warpgroup's first row of the first panel.
  __device__ __forceinline__ void stage(const Rows& rows, float softmax_scale_log2, uint32_t to) const {
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scales[half] = load_head_scale(rows, half, softmax_scale_log2) * scale_;
    // Lane l passes the address of row l % 16 of a group of eight columns, or of the next group.
    const int row = ptx::warp_in_warpgroup() * 16 + lane_ % 16;
#pragma unroll
    for (int n = 0; n < kGroups; n += 2) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] =
            pack(rows.out[4 * n + 2 * i] * scales[i % 2], rows.out[4 * n + 2 * i + 1] * scales[i % 2], T());
      ptx::stmatrix_x4(to + n / 8 * Tile::kQueryPanelBytes + swizzled(row, n % 8 + lane_ / 16), words);
    }
  }

  // Called after finish_sums() by all threads of a warp. `partial_idx`: partial result of the plan; -1: the
  // output.
  __device__ __forceinline__ void write(const Rows& rows, float softmax_scale_log2, int partial_idx) const {
    if (partial_idx >= 0) return write_partial(rows, partial_idx);
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scales[half] = load_head_scale(rows, half, softmax_scale_log2) * scale_;
    if (first_column_of_cta<Tile>() == 0) write_lse(rows, softmax_scale_log2);
    if (params_.out_element == Element::kF32)
      write_wide(rows, scales);
    else
      write_narrow(rows, scales);
  }

 private:
  __device__ __forceinline__ void write_wide(const Rows& rows, const float (&scales)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      write_floats(rows, half, scales[half], reinterpret_cast<float2*>(out_row(tile_row, sizeof(float))));
    }
  }

  __device__ __forceinline__ void write_partial(const Rows& rows, int partial_idx) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
      if (lane_ % 4 == 0 && first_column_of_cta<Tile>() == 0)
        params_.plan.partial_state[partial_row] = make_float2(rows.row_max[half], rows.row_sum[half]);
      write_floats(rows, half, scale_,
                   reinterpret_cast<float2*>(params_.plan.partial_out + partial_row * params_.head_dim_v));
    }
  }

  __device__ __forceinline__ void write_floats(const Rows& rows, int half, float scale, float2* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int column = first_column_of_cta<Tile>() + 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        to[column / 2] =
            make_float2(rows.out[4 * n + 2 * half] * scale, rows.out[4 * n + 2 * half + 1] * scale);
    }
  }

  // The four lanes of a row transpose their words of four groups, so that each writes a whole group and four
  // lanes write 64 bytes.
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&scales)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      auto* const to = reinterpret_cast<uint4*>(out_row(valid ? tile_row : 0, 2));
#pragma unroll
      for (int first = 0; first < kGroups; first += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = pack(rows.out[4 * (first + i) + 2 * half] * scales[half],
                          rows.out[4 * (first + i) + 2 * half + 1] * scales[half], T());
        quad_transpose(words, lane_);
        const int group = first_column_of_cta<Tile>() / 8 + first + lane_ % 4;
        if (valid && group * 8 < params_.head_dim_v)
          to[group] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }

  const float scale_;
};

}  // namespace attend::kernels::cuda::sm90
