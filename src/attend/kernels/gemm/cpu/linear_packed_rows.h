// out = x W^T for many rows of x, with vectors of up to 8 lanes. A block of input features of all rows is
// packed as tiles. Panels of weights are converted and transposed one after another, and multiplied by all
// tiles.
//
// Every element of out is one sum over in_features in order, independent of other elements.
#pragma once

#include "attend/kernels/common/cpu/unroll.h"
#include "attend/kernels/gemm/cpu/linear_packed.h"

namespace attend::kernels::cpu {
namespace {

// Maximum rows per task, for which weights are packed once.
constexpr int64_t kPackedRows = 512;
// Maximum output features per task: enough to amortize packing its rows.
constexpr int64_t kPackedRowsOuts = 512;
// Floats for the tiles of such a task (one megabyte), plus the overrun of whole-vector stores after the last
// tile.
template <class S>
inline constexpr int64_t kPackedTileFloats = (kPackedRows + S::kTileRows) * kPanelSteps;

// packed: consecutive tiles [num_steps, kTileRows] of the rows of x; the last tile is padded with zeros.
// Whole vectors are stored, so up to kLanes - kTileRows elements after the last tile are overwritten.
//
// Packing avoids cache conflicts: rows of x are often whole pages apart.
template <class S>
void pack_rows(const float* x, int64_t x_stride, int64_t num_rows, int num_steps, float* packed) {
  static_assert(S::kTileRows <= S::kLanes);
  for (int64_t row = 0; row < num_rows; row += S::kTileRows)
    for (int i = 0; i < num_steps; i += S::kLanes) {
      const int steps = num_steps - i < S::kLanes ? num_steps - i : S::kLanes;
      typename S::F32 rows[S::kLanes];
      for (int r = 0; r < S::kLanes; ++r)
        rows[r] = r < S::kTileRows && row + r < num_rows ? S::load_first(x + (row + r) * x_stride + i, steps)
                                                         : S::zero();
      S::transpose(rows);
      // Stores in order: the next vector overwrites the last lanes of this one.
      for (int s = 0; s < steps; ++s) S::store(packed + row * num_steps + (i + s) * S::kTileRows, rows[s]);
    }
}

// out += x W^T, or out = x W^T, for kRows rows of a tile and kVecs vectors of output features of a panel. All
// sums are in registers. The sums of the next tile are prefetched.
template <class S, int kRows, int kVecs>
void multiply_tile(const float* x, const float* panel, int num_steps, bool adds, float* out,
                   int64_t out_stride) {
  typename S::F32 sums[kRows][kVecs];
  if (adds)
    unrolled<kRows>([&](auto r) {
      unrolled<kVecs>([&](auto v) { sums[r][v] = S::load(out + r * out_stride + v * S::kLanes); });
    });
  else
    unrolled<kRows>([&](auto r) { unrolled<kVecs>([&](auto v) { sums[r][v] = S::zero(); }); });
  unrolled<kRows>([&](auto r) { __builtin_prefetch(out + (kRows + r) * out_stride, 1, 3); });
  for (int step = 0; step < num_steps; ++step, x += S::kTileRows, panel += kPanelOuts<S>) {
    typename S::F32 weights[kVecs];
    unrolled<kVecs>([&](auto v) { weights[v] = S::load(panel + v * S::kLanes); });
    unrolled<kRows>([&](auto r) {
      const auto element = S::set1(x[r]);
      unrolled<kVecs>([&](auto v) { sums[r][v] = S::fma(element, weights[v], sums[r][v]); });
    });
  }
  unrolled<kRows>([&](auto r) {
    unrolled<kVecs>([&](auto v) { S::store(out + r * out_stride + v * S::kLanes, sums[r][v]); });
  });
}

// Like multiply_tile, for num_rows <= kRows rows.
template <class S, int kRows, int kVecs>
void multiply_tile_rows(int64_t num_rows, const float* x, const float* panel, int num_steps, bool adds,
                        float* out, int64_t out_stride) {
  if constexpr (kRows > 0) {
    if (num_rows >= kRows) return multiply_tile<S, kRows, kVecs>(x, panel, num_steps, adds, out, out_stride);
    multiply_tile_rows<S, kRows - 1, kVecs>(num_rows, x, panel, num_steps, adds, out, out_stride);
  }
}

// Packed tiles of a block of input features of a part's rows.
struct PackedInputs {
  const float* tiles = nullptr;
  int64_t first = 0;
  int count = 0;
};

// out += x W^T, or out = x W^T for the first input features, for kVecs vectors of output features from `out`.
// Prefetches the weights of later output features, a few per step.
template <class S, int kVecs, class Rows>
void multiply_panel_rows(const LinearPart& part, const Rows& weights, const PackedInputs& x, int64_t out,
                         float* panel) {
  constexpr int kOuts = kVecs * S::kLanes, kRows = S::kTileRows, kLineInputs = Rows::kLineVectors * S::kLanes;
  for (int o = 0; o < kOuts; o += S::kLanes) pack_weights<S>(weights, out + o, x.first, x.count, panel + o);
  int64_t fetched = out + kOuts;
  for (int64_t row = 0; row < part.num_rows; row += kRows) {
    const int64_t fetch_end = out + kOuts + (row + kRows) * kOuts / part.num_rows;
    for (; fetched < fetch_end && fetched < part.num_outs; ++fetched)
      for (int i = 0; i < x.count; i += kLineInputs) weights.prefetch(fetched, x.first + i);
    multiply_tile_rows<S, kRows, kVecs>(part.num_rows - row, x.tiles + row * x.count, panel, x.count,
                                        x.first > 0, part.out + row * part.out_stride + out, part.out_stride);
  }
}

template <class S, class Rows>
void multiply_packed_rows(const LinearPart& part, float* tiles) {
  alignas(64) float panel[kPanelSteps * kPanelOuts<S>];
  const Rows weights(part);
  const int64_t vector_outs = part.num_outs / S::kLanes * S::kLanes;
  for (int64_t step = 0; step < part.in_features; step += kPanelSteps) {
    const int64_t rest = part.in_features - step;
    const PackedInputs x = {tiles, step, rest < kPanelSteps ? static_cast<int>(rest) : kPanelSteps};
    pack_rows<S>(part.x + step, part.x_stride, part.num_rows, x.count, tiles);
    int64_t out = 0;
    for (; out + kPanelOuts<S> <= vector_outs; out += kPanelOuts<S>)
      multiply_panel_rows<S, S::kTileVecs>(part, weights, x, out, panel);
    for (; out < vector_outs; out += S::kLanes) multiply_panel_rows<S, 1>(part, weights, x, out, panel);
  }
  multiply_last_outs<S, Rows>(part, vector_outs);
}

}  // namespace
}  // namespace attend::kernels::cpu
