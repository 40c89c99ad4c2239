// From the accumulators of a tile to its results in memory.
#pragma once

#include <cmath>

#include "attend/kernels/cuda/sm80/attention_tile.cuh"
#include "attend/kernels/cuda/sm80/tile_config.h"
#include "attend/kernels/cuda/sm80/tile_rows.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

// Writes the rows of one job: to `out` and `lse`, or to slot `partial` of the plan (-1: the result is final).
// `factor`: of the scores in exp2. Results are float32 or T.
template <class T, int kHeadDimV, class Config, class Warp>
class TileResults {
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kWarps = Config::kWarpsN;

 public:
  // Where warps that share rows merge them: what they leave in `merge_outs`, and what merge() keeps beside
  // it.
  static constexpr int kMergeOutBytes = kWarps > 1 ? kWarps* kRows* kHeadDimV * 4 : 0;
  static constexpr int kMergeSumBytes = kWarps > 1 ? kWarps* kRows * 2 * 4 : 0;

  __device__ TileResults(const AttentionParams& params, const TileRows& rows, float factor, int partial)
      : params_(params),
        rows_(rows),
        factor_(factor),
        partial_(partial),
        wide_(partial >= 0 || params.out_element == Element::kF32) {}

  // Each warp has rows of its own, from `warp_row` of the tile on.
  __device__ void write(const Warp& warp, int warp_row) const {
    const int lane = threadIdx.x % 32, column = lane % 4 * 2;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row + b * 16 + half * 8 + lane / 4;
        if (tile_row >= rows_.count()) continue;
        const Target target = finish(tile_row, warp.largest[b][half], warp.sum[b][half], lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n)
          if (n * 8 < params_.head_dim_v)
            store(target, n * 8 + column, warp.out[b][n][2 * half], warp.out[b][n][2 * half + 1]);
      }
    }
  }

  // The warps hold results of the same rows over different keys. Warp 0 comes first, so that the order is
  // fixed. `outs`: kMergeOutBytes that nobody else reads or writes once all threads are here; `largests`:
  // kMergeSumBytes.
  __device__ void merge(const Warp& warp, float* outs, float* largests) const {
    float* sums = largests + kWarps * kRows;  // [kWarps, kRows], as the largest scores
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = half * 8 + lane / 4;
      if (lane % 4 == 0) {
        largests[w * kRows + tile_row] = warp.largest[0][half];
        sums[w * kRows + tile_row] = warp.sum[0][half];
      }
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
        *out_at(outs, w, tile_row, n * 8 + lane % 4 * 2) =
            make_float2(warp.out[0][n][2 * half], warp.out[0][n][2 * half + 1]);
    }
    __syncthreads();
    constexpr int kPairs = kHeadDimV / 2;
    for (int i = threadIdx.x; i < kRows * kPairs; i += kThreads) {
      const int tile_row = i / kPairs, column = i % kPairs * 2;
      if (tile_row >= rows_.count() || column >= params_.head_dim_v) continue;
      float largest = -INFINITY;
#pragma unroll
      for (int other = 0; other < kWarps; ++other)
        largest = fmaxf(largest, largests[other * kRows + tile_row]);
      const float shift = largest == -INFINITY ? 0.0f : largest * factor_;
      float sum = 0.0f, a = 0.0f, b = 0.0f;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        const float weight = ptx::exp2_fast(largests[other * kRows + tile_row] * factor_ - shift);
        const float2 pair = *out_at(outs, other, tile_row, column);
        sum += weight * sums[other * kRows + tile_row];
        a += weight * pair.x;
        b += weight * pair.y;
      }
      store(finish(tile_row, largest, sum, column == 0), column, a, b);
    }
  }

 private:
  // Where a row goes, and the factor of its outputs.
  struct Target {
    char* out;
    float factor;
  };

  // [kWarps, kRows, kHeadDimV], the columns xored so that the rows that one store touches lie in different
  // banks.
  __device__ static float2* out_at(float* outs, int warp, int tile_row, int column) {
    return reinterpret_cast<float2*>(outs + (warp * kRows + tile_row) * kHeadDimV +
                                     (column ^ (tile_row & 7) << 3));
  }

  // The last step of a row, given the `largest` score and the `sum` of its weights. Writes its LSE if
  // `write_lse`.
  __device__ Target finish(int tile_row, float largest, float sum, bool write_lse) const {
    const TileRow row = rows_.at(tile_row);
    const bool final = partial_ < 0;
    float factor = 0.0f, lse = -INFINITY;
    if (sum > 0.0f) {
      float denominator = sum;
      if (final && params_.sinks != nullptr)
        denominator += ptx::exp2_fast(params_.sinks[row.head] * kLog2E - largest * factor_);
      factor = (final ? params_.v_scale : 1.0f) * __frcp_rn(denominator);
      lse = largest * factor_ * kLn2 + __logf(sum);
    }
    if (!final) {
      const int64_t slot_row = partial_ * kRows + tile_row;
      if (write_lse) params_.plan.partial_lse[slot_row] = lse;
      return {reinterpret_cast<char*>(params_.plan.partial_out + slot_row * params_.head_dim_v), factor};
    }
    const int64_t token = rows_.span().first_token + row.query;
    if (write_lse && params_.lse != nullptr)
      params_.lse[token * params_.lse_token_stride + row.head * params_.lse_head_stride] = lse;
    const int64_t at = token * params_.out.token_stride + row.head * params_.out.head_stride;
    return {static_cast<char*>(params_.out.data) + at * (wide_ ? 4 : 2), factor};
  }

  // Two neighbouring columns.
  __device__ void store(const Target& target, int column, float a, float b) const {
    a *= target.factor;
    b *= target.factor;
    if (wide_)
      *reinterpret_cast<float2*>(target.out + column * 4) = make_float2(a, b);
    else
      *reinterpret_cast<uint32_t*>(target.out + column * 2) = pack(a, b, T());
  }

  const AttentionParams& params_;
  const TileRows& rows_;
  float factor_;
  int partial_;
  bool wide_;
};

}  // namespace attend::kernels::cuda::sm80
