// Decode of up to 8 rows with keys as the rows of the MMAs: S^T = K q^T and out^T = V^T P^T. An MMA's 16 rows
// are 16 keys, or 16 columns of V, and its 8 columns are the query rows, so that no half of the MMAs, scores,
// exponentials and accumulators is padding.
#pragma once

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda {

static_assert(kKeyMajorRows == 8);

// Rows of a warp in registers. Lane l holds rows 2 (l % 4) and 2 (l % 4) + 1 (`row` 0 and 1), and of every 16
// keys or columns those at positions l / 4 and l / 4 + 8: elements `row` and `row` + 2.
template <class T, int kHeadDimV, int kKeys>
struct KeyMajorWarp {
  static constexpr bool kKeyMajor = true;
  static constexpr int kNumKeys = kKeys, kNumRowBlocks = 1, kBlocks = kKeys / 16;
  static constexpr float kSlack = 8.0f;  // same as WarpRows::kSlack

  float scores[1][kBlocks][4];
  float out[kHeadDimV / 16][4];
  float row_max[2];  // of unscaled scores; stale by at most kSlack after scaling
  float row_sum[2];  // of this lane's keys only

  __device__ void clear() {
#pragma unroll
    for (auto& four : out)
#pragma unroll
      for (float& x : four) x = 0.0f;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      row_max[row] = -INFINITY;
      row_sum[row] = 0.0f;
    }
  }

  __device__ static int first_row() { return static_cast<int>(threadIdx.x) % 4 * 2; }
  __device__ static int place() { return static_cast<int>(threadIdx.x) % 32 / 4; }

  // See WarpRows::softmax(): only a row's own scores determine whether its max is raised.
  __device__ void softmax(float softmax_scale_log2) {
    float rescale[2], new_max[2];
    bool changed = false;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      new_max[row] = row_max[row];
#pragma unroll
      for (const auto& four : scores[0]) new_max[row] = fmaxf(new_max[row], fmaxf(four[row], four[row + 2]));
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2)
#pragma unroll
      for (int row = 0; row < 2; ++row)
        new_max[row] = fmaxf(new_max[row], __shfl_xor_sync(0xffffffffu, new_max[row], step));
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if (!((new_max[row] - row_max[row]) * softmax_scale_log2 > kSlack)) new_max[row] = row_max[row];
      const float shift = new_max[row] == -INFINITY ? 0.0f : __fmul_rn(new_max[row], softmax_scale_log2);
      // The product is rounded separately, so that the factor is exactly 1 for a row with unchanged max.
      rescale[row] = ptx::ex2_approx(__fmul_rn(row_max[row], softmax_scale_log2) - shift);
      changed |= new_max[row] != row_max[row];
      row_max[row] = new_max[row];
      float added_sum = 0.0f;
#pragma unroll
      for (auto& four : scores[0]) {
#pragma unroll
        for (int i = row; i < 4; i += 2) {
          four[i] = ptx::ex2_approx(four[i] * softmax_scale_log2 - shift);
          added_sum += four[i];
        }
      }
      row_sum[row] = row_sum[row] * rescale[row] + added_sum;
    }
    // If no row of the warp has a new max, all factors are 1, and skipping them changes no bit.
    if (!__any_sync(0xffffffffu, changed)) return;
#pragma unroll
    for (auto& four : out)
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] *= rescale[i % 2];
  }

  // Computes row sums over all keys. Called once, after the last tile.
  __device__ void finish_sums() {
#pragma unroll
    for (int step = 4; step < 32; step *= 2)
#pragma unroll
      for (float& sum : row_sum) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  }

  // Packs P^T of 16 keys as operand B, after softmax().
  __device__ void pack_p(int block, uint32_t (&p)[2]) const {
    const auto& four = scores[0][block];
    p[0] = ptx::transpose(pack(four[0], four[1], T()));
    p[1] = ptx::transpose(pack(four[2], four[3], T()));
  }

  // See WarpRows.
  __device__ void scale_scores(const float* row_scales) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float scale = row_scales[first_row() + row];
#pragma unroll
      for (auto& four : scores[0]) {
        four[row] *= scale;
        four[row + 2] *= scale;
      }
    }
  }

  template <class VisibleOf>
  __device__ void mask(const VisibleOf& get_mask) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint64_t visible = get_mask(first_row() + row) >> place();
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if ((visible >> (n * 16 + half * 8) & 1) == 0) scores[0][n][row + 2 * half] = -INFINITY;
    }
  }

  // Masks keys from the warp's `num_keys`-th on for all rows.
  __device__ void end_at(int num_keys) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (n * 16 + i / 2 * 8 + place() >= num_keys) scores[0][n][i] = -INFINITY;
  }

  // Stores softmax states of the rows for merging.
  __device__ void put_states(float* row_maxes, float* row_sums) const {
    if (place() != 0) return;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      row_maxes[first_row() + row] = row_max[row];
      row_sums[first_row() + row] = row_sum[row];
    }
  }

  __device__ void clear_scores() {
#pragma unroll
    for (auto& four : scores[0])
#pragma unroll
      for (float& score : four) score = 0.0f;
  }
};

// Queries of a warp as operand B.
template <int kHeadDimQk>
struct KeyMajorQueries {
  static constexpr int kSteps = kHeadDimQk / 16;
  using Rows = SwizzledRows<kHeadDimQk * 2>;

  uint32_t held[kSteps / 2][4];

  // Returns a lane's offset from the address of the first row for load().
  __device__ static uint32_t lane() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return Rows::offset(lane % 8, lane / 8);
  }
  __device__ void load(uint32_t q) {
#pragma unroll
    for (int pair = 0; pair < kSteps / 2; ++pair) ptx::ldmatrix_x4(held[pair], Rows::advance(q, pair * 4));
  }
  __device__ uint32_t low(int step) const { return held[step / 2][step % 2 * 2]; }
  __device__ uint32_t high(int step) const { return held[step / 2][step % 2 * 2 + 1]; }
};

// A warp with its queries, and the layout of its keys and values in shared memory, with kBytes per element.
template <class T, int kHeadDimQk, int kHeadDimV, int kKeys, int kBytes>
struct KeyMajorOperands : KeyMajorWarp<T, kHeadDimV, kKeys> {
  using Queries = KeyMajorQueries<kHeadDimQk>;
  using KRows = SwizzledRows<kHeadDimQk * kBytes>;
  using VRows = SwizzledRows<kHeadDimV * kBytes>;
  // Fragments of keys or values that are in flight or in use at a time.
  static constexpr int kFragments = 4;

  Queries queries;

  __device__ static uint32_t query_lane() { return Queries::lane(); }
  __device__ static uint32_t key_lane() { return row_lane<KRows>(); }
  __device__ static uint32_t value_lane() { return row_lane<VRows>(); }

  // Called before the first multiply_qk().
  __device__ void load_queries_to_registers(uint32_t q) { queries.load(q); }
};

// Consumer: keys of one warp in a 16-bit KV tile.
template <class T, int kHeadDimQk, int kHeadDimV, int kKeys>
struct KeyMajorTile : KeyMajorOperands<T, kHeadDimQk, kHeadDimV, kKeys, 2> {
  using Operands = KeyMajorOperands<T, kHeadDimQk, kHeadDimV, kKeys, 2>;
  using Operands::kBlocks, Operands::kFragments, Operands::out, Operands::queries, Operands::scores;
  using typename Operands::KRows, typename Operands::Queries, typename Operands::VRows;

  // scores = K q^T. `k`: first key of the warp plus key_lane(). Two chains of MMAs have half the latency of
  // one.
  __device__ void multiply_qk(uint32_t, uint32_t k) {
    uint32_t keys[kFragments][4];
    const auto load_keys = [&](int i) {
      ptx::ldmatrix_x4(keys[i % kFragments],
                       KRows::advance(k, i / kBlocks * 2) + i % kBlocks * 16 * kHeadDimQk * 2);
    };
    float odd[kBlocks][4] = {};
    this->clear_scores();
#pragma unroll
    for (int i = 0; i + 1 < kFragments; ++i) load_keys(i);
#pragma unroll
    for (int step = 0; step < Queries::kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = step * kBlocks + n;
        if (i + kFragments - 1 < Queries::kSteps * kBlocks) load_keys(i + kFragments - 1);
        ptx::mma_m16n8k16(step % 2 == 0 ? scores[0][n] : odd[n], keys[i % kFragments], queries.low(step),
                          queries.high(step), T());
      }
    }
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[0][n][i] += odd[n][i];
  }

  // out += V^T P^T. `v`: first key of the warp plus value_lane().
  __device__ void multiply_pv(uint32_t v) {
    constexpr int kColumnBlocks = kHeadDimV / 16;
    uint32_t p[2], values[kFragments][4];
    const auto load_values = [&](int i) {
      ptx::ldmatrix_x4_trans(values[i % kFragments], VRows::advance(v, i % kColumnBlocks * 2) +
                                                         i / kColumnBlocks * 16 * kHeadDimV * 2);
    };
#pragma unroll
    for (int i = 0; i + 1 < kFragments; ++i) load_values(i);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      this->pack_p(block, p);
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n) {
        const int i = block * kColumnBlocks + n;
        if (i + kFragments - 1 < kBlocks * kColumnBlocks) load_values(i + kFragments - 1);
        const auto& got = values[i % kFragments];
        // Halves of the keys are adjacent in V, halves of the columns in operand A.
        const uint32_t a[4] = {got[0], got[2], got[1], got[3]};
        ptx::mma_m16n8k16(out[n], a, p[0], p[1], T());
      }
    }
  }

  // Stores the rows to [8, pitch] floats.
  __device__ void put_rows(float* rows, int pitch) const {
#pragma unroll
    for (int n = 0; n < kHeadDimV / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rows[(this->first_row() + i % 2) * pitch + n * 16 + i / 2 * 8 + this->place()] = out[n][i];
  }
};

// The same for fp8 K and V of type `kElement`, which are converted to f16 in registers. The columns of
// queries are permuted as for Fp8WarpTile (store_f16_queries). Of every 16 columns of V, the even ones are
// the first 8 rows of an MMA, the odd ones the next 8.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kKeys>
struct Fp8KeyMajorTile : KeyMajorOperands<__half, kHeadDimQk, kHeadDimV, kKeys, 1> {
  using Operands = KeyMajorOperands<__half, kHeadDimQk, kHeadDimV, kKeys, 1>;
  using Operands::kBlocks, Operands::kFragments, Operands::out, Operands::queries, Operands::scores;
  using typename Operands::KRows, typename Operands::Queries, typename Operands::VRows;

  // One load has two steps of 16 columns of 16 keys.
  __device__ void multiply_qk(uint32_t, uint32_t k) {
    constexpr int kPairs = Queries::kSteps / 2;
    uint32_t keys[kFragments][4];
    const auto load_keys = [&](int i) {
      ptx::ldmatrix_x4(keys[i % kFragments],
                       KRows::advance(k, i / kBlocks * 2) + i % kBlocks * 16 * kHeadDimQk);
    };
    float odd[kBlocks][4] = {};
    this->clear_scores();
#pragma unroll
    for (int i = 0; i + 1 < kFragments && i < kPairs * kBlocks; ++i) load_keys(i);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int i = pair * kBlocks + n;
        if (i + kFragments - 1 < kPairs * kBlocks) load_keys(i + kFragments - 1);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint32_t first = keys[i % kFragments][2 * m], second = keys[i % kFragments][2 * m + 1];
          const uint32_t a[4] = {low_pair<kElement>(first), low_pair<kElement>(second),
                                 high_pair<kElement>(first), high_pair<kElement>(second)};
          ptx::mma_m16n8k16(m == 0 ? scores[0][n] : odd[n], a, queries.low(2 * pair + m),
                            queries.high(2 * pair + m), __half());
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[0][n][i] += odd[n][i];
  }

  __device__ void multiply_pv(uint32_t v) {
    constexpr int kColumnBlocks = kHeadDimV / 32;
    uint32_t p[2], values[kFragments][4];
    const auto load_values = [&](int i) {
      ptx::ldmatrix_x4_trans(values[i % kFragments],
                             VRows::advance(v, i % kColumnBlocks * 2) + i / kColumnBlocks * 16 * kHeadDimV);
    };
#pragma unroll
    for (int i = 0; i + 1 < kFragments && i < kBlocks * kColumnBlocks; ++i) load_values(i);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      this->pack_p(block, p);
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n) {
        const int i = block * kColumnBlocks + n;
        if (i + kFragments - 1 < kBlocks * kColumnBlocks) load_values(i + kFragments - 1);
#pragma unroll
        for (int piece = 0; piece < 2; ++piece) {
          const EvenOdd low = even_odd_pairs<kElement>(values[i % kFragments][2 * piece]);
          const EvenOdd high = even_odd_pairs<kElement>(values[i % kFragments][2 * piece + 1]);
          const uint32_t a[4] = {low.even, low.odd, high.even, high.odd};
          ptx::mma_m16n8k16(out[2 * n + piece], a, p[0], p[1], __half());
        }
      }
    }
  }

  __device__ void put_rows(float* rows, int pitch) const {
#pragma unroll
    for (int n = 0; n < kHeadDimV / 16; ++n)
#pragma unroll
      for (int row = 0; row < 2; ++row)
        *reinterpret_cast<float2*>(rows + (this->first_row() + row) * pitch + n * 16 + 2 * this->place()) =
            make_float2(out[n][row], out[n][row + 2]);
  }
};

}  // namespace attend::kernels::cuda
