// What a consumer of prefill on sm_90a (prefill.cuh) has in registers: products and online softmax.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_softmax.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// What the scores of a thread's rows are multiplied by so that the softmax's exponentials are powers of two:
// [half] of either row.
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
// Of P in f16 beside queries that may be bf16: what is small beside a row's largest stays as long as f16 can
// have it.
struct PrefillF16Precision {
  static constexpr float kSlack = 8.0f, kOffset = 7.0f, kUnscale = 0x1p-7f;
};
template <class Tile>
using PrefillPrecisionOf = std::conditional_t<Tile::kConvertsKv, PrefillF16Precision, PrefillPrecision>;

// A consumer warpgroup's 64 rows in registers, with P and, under fixed splits, queries. Element [4 n + 2 half
// + i] of out is of column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows : PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillPrecisionOf<Tile>> {
  using Precision = PrefillPrecisionOf<Tile>;
  using Softmax = PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, Precision>;
  using Softmax::scores, Softmax::out, Softmax::row_max, Softmax::row_sum, Softmax::rescale, Softmax::shifts,
      Softmax::rescales, Softmax::kOffset;

  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kHeadDimV;

  // Queries in registers, where 64 keys at a time would want them from shared memory as often as keys.
  static constexpr bool kQueriesInRegisters = Tile::kFixedSplits;
  static constexpr int kQuerySteps = Tile::kHeadDimQk / 16;

  // Of a lane's P of a row: what is above raises the row max, so that P stays within 16 bits.
  static constexpr float kMaxSum = 256.0f / Precision::kUnscale;
  // What of that is too near to infinity to be scaled.
  static constexpr float kMaxScaledSum = 0x1p64f;

  uint32_t queries[kQueriesInRegisters ? kQuerySteps : 1][4];  // operand A of wgmma with K
  uint32_t p[kSteps][4];                                       // operand A of wgmma with V

  // Before the first multiply_keys(), with its `q`.
  __device__ __forceinline__ void load_queries_to_registers(uint32_t q) {
    if constexpr (kQueriesInRegisters) {
      constexpr int kStepsPerPanel = kPanelColumns / 16;
      const int lane = ptx::lane(), row = ptx::warp_of_warpgroup() * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < kQuerySteps; ++i)
        ptx::ldmatrix_x4(queries[i], q + i / kStepsPerPanel * Tile::kQueryPanelBytes +
                                         swizzled(row, i % kStepsPerPanel * 2 + lane / 16));
    }
  }

  // The descriptor of what lies `bytes` behind, by an addition of 32 bits: uniform registers are few, and
  // those between two wgmma count.
  __device__ __forceinline__ static uint64_t further(uint64_t first, int bytes) {
    return (first & 0xffffffff00000000) | (static_cast<uint32_t>(first) + static_cast<uint32_t>(bytes / 16));
  }

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsPerPanel = kPanelColumns / 16, kStepBytes = 32;
    // Else descriptors of all steps stay in registers between KV tiles.
    asm volatile("" : "+r"(q));
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      const int panel = i / kStepsPerPanel, in_panel = i % kStepsPerPanel * kStepBytes;
      const uint64_t keys = further(b, panel * Tile::kKeyPanelBytes + in_panel);
      if constexpr (kQueriesInRegisters)
        ptx::wgmma_mma_async_rs_k_major(scores, queries[i], keys, i > 0, T());
      else
        ptx::wgmma_mma_async(scores, further(a, panel * Tile::kQueryPanelBytes + in_panel), keys, i > 0, T());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v, or without `add` out = P v, over all keys of the tile: those that are nobody's are
  // zeros in both, and with branches around them ptxas serializes the products (its note C7520).
  __device__ __forceinline__ void multiply_values(uint32_t v, bool add) {
    constexpr int kStepBytes = 16 * kPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, add || step > 0, T());
    ptx::wgmma_commit_group();
  }

  // Of the first KV tile: the row max, P and its sum.
  template <class Scales>
  __device__ __forceinline__ void begin(const Scales& scales) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = quad_max(max_of(half));
      row_sum[half] = 0.0f;
      rescale[half] = 0.0f;
      shifts[half] = row_max[half] == -INFINITY ? Softmax::kNoMaxShift
                                                : __fmul_rn(row_max[half], scales[half]) - kOffset;
    }
    exponentiate(scales);
  }

  // Second half: scores become P = 2^(kOffset + scale (score - row_max)).
  template <class Scales>
  __device__ __forceinline__ void exponentiate(const Scales& scales) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two chains are faster; sm80's kernel has one.
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

  // Online softmax in one step, which waits for no row max: scores become P relative to that of the KV tiles
  // before. Where a lane's part of a row then has a sum above kMaxSum, the row max is raised. `score` makes
  // the scores once more.
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

  // Of rows with a sum above kMaxSum. P becomes relative to the new row max; where it may have overflowed, as
  // of a row that had none, from its score. The warp's other rows take theirs again with it, and those behind
  // the work tile's last row may be what asks for it, so that bits depend on a row alone as long as mma.sync
  // and wgmma add alike (deterministic.md), as they did wherever it was tried.
  template <class Scales, class Score, class WaitForOut>
  __device__ __forceinline__ void raise_p_max(const Scales& scales, float (&tile_sum)[2], const Score& score,
                                              const WaitForOut& wait_for_out) {
    // 0: P overflows. In a register, since predicates are few.
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
  // From scores, relative to their max where P has overflowed. Returns the sum of P.
  __device__ __forceinline__ float exponentiate_again(int half, float scale) {
    const float new_max = quad_max(max_of(half));
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
  // P of a row with a sum above kMaxSum, and that sum, relative to P's max.
  __device__ __forceinline__ void scale_p(int half, float scale, float& tile_sum) {
    const bool raises = quad_max(tile_sum) > kMaxSum;
    const float most = quad_max(max_of(half));
    float p_scale = 1.0f;
    if (raises) {
      raise_max_to(half, row_max[half] + __fdividef(__log2f(most) - kOffset, scale), scale);
      p_scale = rescale[half];
    }
    tile_sum *= p_scale;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) scores[4 * n + 2 * half + i] *= p_scale;
  }
  __device__ __forceinline__ float max_of(int half) const {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      most = fmaxf(most, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
    return most;
  }
  __device__ __forceinline__ void raise_max_to(int half, float new_max, float scale) {
    const float shift = __fmul_rn(new_max, scale);
    rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], scale) - shift);
    row_max[half] = new_max;
    shifts[half] = shift - kOffset;
  }

  // The scores of multiply_keys(), by each warp for its own rows.
  __device__ __forceinline__ void multiply_keys_by_warp(uint32_t q, uint32_t k) {
    constexpr int kStepsPerPanel = kPanelColumns / 16;
    const int lane = ptx::lane(), row = ptx::warp_of_warpgroup() * 16 + lane % 16;
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
        __syncwarp();  // keeps registers of those that follow from being wanted now
      }
    }
  }

  // After exponentiate(), when the PV of the KV tile before has ended.
  __device__ __forceinline__ void rescale_and_pack_p() {
    if (rescales) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
    pack_p();
  }
  // For a product that nobody reads.
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

  // Row sums over all columns, as if P were not 2^kOffset times as large: call once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = quad_sum(s) * Precision::kUnscale;
  }
};

// Queries of bf16 for products with K/V of fp8 that have become f16 (prefill.cuh): each row is scaled by a
// power of two, since bf16 has three bits more of exponent than f16.

// For a row whose largest magnitude is `row_absmax`: what takes that to [2^8, 2^9), far below f16's largest,
// and what scores are multiplied by for it. Elements lose what is below 2^-24 of the scaled row, 2^-32 of
// its largest; of rows below 2^-32 what is below 2^-64.
struct QueryScale {
  float to_f16, from_f16;
};
__device__ __forceinline__ QueryScale query_scale(float row_absmax) {
  constexpr int kBias = 127, kExponent = 8, kLeast = kBias - 32;
  const int exponent = min(max(static_cast<int>(__float_as_uint(row_absmax) >> 23), kLeast), 2 * kBias);
  return {__int_as_float((2 * kBias + kExponent - exponent) << 23),
          __int_as_float((exponent - kExponent) << 23)};
}

// `scaled` / `scale`, which are normal and a power of two apart, or both zero (1).
__device__ __forceinline__ float power_of_two_between(float scale, float scaled) {
  return __int_as_float(__float_as_int(scaled) - __float_as_int(scale) + __float_as_int(1.0f));
}

// Converts the 16 rows of a warp of consumers in their place. `q`: the warpgroup's first row. Returns what
// the scores of the thread's rows (PrefillSoftmax) are to be multiplied by.
template <class Tile>
__device__ __forceinline__ RowScales queries_to_f16(uint32_t q) {
  // Four lanes have a row, each two pieces of 16 bytes of a panel; of two neighboring rows one has the other
  // half of the panel first, in other banks.
  constexpr int kPieces = 2 * Tile::kQkPanels;
  const int lane = ptx::lane();
  RowScales from_f16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = ptx::warp_of_warpgroup() * 16 + lane / 4 + 8 * half;
    const uint32_t at[2] = {q + swizzled(row, lane % 4 + row % 2 * 4),
                            q + swizzled(row, lane % 4 + 4 - row % 2 * 4)};
    const auto address = [&](int piece) { return at[piece % 2] + piece / 2 * Tile::kQueryPanelBytes; };
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) pieces[i] = ptx::ld_shared_16(address(i));
    __nv_bfloat162 most = __float2bfloat162_rn(0.0f);
    const auto scale_exponent = [&](uint32_t pair) {
      most = __hmax2(most, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&pair)));
    };
#pragma unroll
    for (const uint4& piece : pieces) {
      scale_exponent(piece.x);
      scale_exponent(piece.y);
      scale_exponent(piece.z);
      scale_exponent(piece.w);
    }
    const QueryScale scale = query_scale(quad_max(fmaxf(__low2float(most), __high2float(most))));
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

// Fixed splits in prefill on sm_90a (prefill.cuh): merged in the order of the keys, as sm80's kernel does.

// Fixed splits: what a thread has of its rows over the splits that have ended, beside those of the present
// one.
template <class Rows>
class PrefillSplits {
  static constexpr int kPieces = Rows::kColumns / 8, kStride = 128;

 public:
  // `out`: this thread's place of the splits in shared memory.
  __device__ __forceinline__ PrefillSplits(float4* out, int first_key, int keys_per_split)
      : out_(out), end_((first_key / keys_per_split + 1) * keys_per_split) {}

  // Before the scores of the KV tile from `first_key` on: whether a new split begins with them.
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

  // After that, when all of the ended split's P V is in rows.out, which becomes zero.
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

  // The last split, after its finish_sums(): rows become those of all splits.
  __device__ __forceinline__ void finish(Rows& rows, float softmax_scale_log2) {
    merge(rows.row_max, rows.row_sum, rows.out, softmax_scale_log2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.row_max[half] = row_max_[half];
      rows.row_sum[half] = row_sum_[half];
    }
  }

 private:
  // The splits so far come first. `out`: of the split that is added, then of all.
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
  // Of the split that ends, whose P V may still be under way.
  float split_row_max_[2], split_row_sum_[2];
  bool is_empty_ = true;
  int end_;  // of the present split: the first key of the next
};
struct NoPrefillSplits {
  __device__ NoPrefillSplits(float4*, int, int) {}
};

// Epilogue of prefill on sm_90a (prefill.cuh): results of a work tile to the output, or as partial results.

// `T`: of results in 16 bits.
template <class T, class Rows, class Tile>
class PrefillEpilogue : PrefillResults {
  static constexpr int kGroups = Rows::kColumns / 8;  // of eight columns

 public:
  // `scale`: what results are multiplied by besides that of all work tiles.
  __device__ PrefillEpilogue(const AttentionParams& params, const WorkTileRows& rows, int warpgroup,
                             float scale)
      : PrefillResults(params, rows, prefill_row<Tile>(warpgroup)), scale_(scale) {}

  using PrefillResults::write_lse;

  // After finish_sums(). By all threads of a warp, whose 16 rows all are. Results without LSE, as panels in
  // shared memory: `to` is the warpgroup's first row of the first.
  __device__ __forceinline__ void stage(const Rows& rows, float softmax_scale_log2, uint32_t to) const {
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scales[half] = load_head_scale(rows, half, softmax_scale_log2) * scale_;
    // Lane l gives the address of row l % 16 of a group of eight columns, or of the next one.
    const int row = ptx::warp_of_warpgroup() * 16 + lane_ % 16;
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

  // After finish_sums(). By all threads of a warp. `partial_idx`: of the plan; -1: the output.
  __device__ __forceinline__ void write(const Rows& rows, float softmax_scale_log2, int partial_idx) const {
    if (partial_idx >= 0) return write_partial(rows, partial_idx);
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scales[half] = load_head_scale(rows, half, softmax_scale_log2) * scale_;
    write_lse(rows, softmax_scale_log2);
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
      if (lane_ % 4 == 0)
        params_.plan.partial_state[partial_row] = make_float2(rows.row_max[half], rows.row_sum[half]);
      write_floats(rows, half, scale_,
                   reinterpret_cast<float2*>(params_.plan.partial_out + partial_row * params_.head_dim_v));
    }
  }

  __device__ __forceinline__ void write_floats(const Rows& rows, int half, float scale, float2* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int column = 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        to[column / 2] =
            make_float2(rows.out[4 * n + 2 * half] * scale, rows.out[4 * n + 2 * half + 1] * scale);
    }
  }

  // Four lanes of a row transpose their words of four groups, so that each writes whole groups: four lanes 64
  // bytes.
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
        const int group = first + lane_ % 4;
        if (valid && group * 8 < params_.head_dim_v)
          to[group] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }

  const float scale_;
};

}  // namespace attend::kernels::cuda::sm90
