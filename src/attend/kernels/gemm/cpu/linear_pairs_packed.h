// Products of rows of pairs: panels of weights are transposed, stay in the L1 cache, and are multiplied by
// all rows.
//
// Every element of out is one sum over in_features in order, independent of other elements.
#pragma once

#include "attend/kernels/common/cpu/unroll.h"
#include "attend/kernels/gemm/cpu/linear_pairs_skinny.h"

namespace attend::kernels::cpu {
namespace {

// Panel shape: [up to kPanelPairs, kPairPanelOuts] pairs, input features by output features. A panel has 24
// KiB, half of the L1 cache; the other half holds the rows.
constexpr int kPanelPairs = 192;
constexpr int kPanelInputs = 2 * kPanelPairs;
constexpr int kPairPanelVecs = 2;
constexpr int kPairPanelOuts = kPairPanelVecs * Avx512::kLanes;
// 12 x 2 sums: a step reads two vectors of weights, half of what 6 x 4 sums read, and 12 pairs of x.
constexpr int kPairPanelRows = 12;
// Steps between prefetches.
constexpr int kFetchSteps = 8;

// Input features of some output features in the weight's own memory.
struct PanelSource {
  const BF16* weights = nullptr;
  int64_t in_features = 0;  // stride between output features
  int num_inputs = 0, num_outs = 0;
};

// Prefetches the lines of a panel in portions.
class PanelFetch {
 public:
  explicit PanelFetch(const PanelSource& panel, int64_t num_calls)
      : row_(reinterpret_cast<const char*>(panel.weights)),
        stride_(panel.in_features * 2),
        row_bytes_(panel.num_inputs * 2),
        rows_left_(panel.num_outs),
        lines_(static_cast<int>(
            ceil_div(int64_t{panel.num_outs} * ceil_div(panel.num_inputs * 2, 64), num_calls))) {}

  // Prefetches the share of one of num_calls calls.
  [[gnu::always_inline]] void step() {
    for (int line = 0; line < lines_ && rows_left_ > 0; ++line) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += 64;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_left_;
    }
  }

 private:
  const char* row_;
  int64_t stride_, row_bytes_, at_ = 0;
  int rows_left_, lines_;
};

// panel[p, o] = the pair of input features 2 p and 2 p + 1 of output feature o. Input features beyond
// num_inputs are zero, up to a whole pair. num_outs is a multiple of kLanes.
inline void pack_panel(const PanelSource& source, uint32_t* panel) {
  for (int out = 0; out < source.num_outs; out += Avx512::kLanes)
    for (int i = 0; i < source.num_inputs; i += kPairInputs) {
      const int count = source.num_inputs - i < kPairInputs ? source.num_inputs - i : kPairInputs;
      const BF16* const weights = source.weights + out * source.in_features + i;
      Pairs rows[Avx512::kLanes];
      for (int o = 0; o < Avx512::kLanes; ++o)
        rows[o] = Bf16Mac::load_steps(weights + o * source.in_features, count);
      Bf16Mac::transpose(rows);
      for (int pair = 0; 2 * pair < count; ++pair)
        Bf16Mac::store(panel + (i / 2 + pair) * kPairPanelOuts + out, rows[pair]);
    }
}

// Multiplies kRows rows by kVecs vectors of output features of a panel. All sums are in registers.
template <int kRows, int kVecs>
void multiply_panel_tile(const uint32_t* x, int64_t x_stride, const uint32_t* panel, int num_pairs, bool adds,
                         float* out, int64_t out_stride, PanelFetch& fetch) {
  __m512 sums[kRows][kVecs];
  if (adds)
    unrolled<kRows>([&](auto r) {
      unrolled<kVecs>([&](auto v) { sums[r][v] = Avx512::load(out + r * out_stride + v * Avx512::kLanes); });
    });
  else
    unrolled<kRows>([&](auto r) { unrolled<kVecs>([&](auto v) { sums[r][v] = Avx512::zero(); }); });
  for (int at = 0; at < num_pairs;) {
    fetch.step();
    const int end = num_pairs - at < kFetchSteps ? num_pairs : at + kFetchSteps;
    for (; at < end; ++at, ++x, panel += kPairPanelOuts) {
      Pairs weights[kVecs];
      unrolled<kVecs>([&](auto v) { weights[v] = Bf16Mac::load(panel + v * Avx512::kLanes); });
      unrolled<kRows>([&](auto r) {
        const Pairs pair = Bf16Mac::broadcast(x + r * x_stride);
        unrolled<kVecs>([&](auto v) { sums[r][v] = Bf16Mac::mac(pair, weights[v], sums[r][v]); });
      });
    }
  }
  unrolled<kRows>([&](auto r) {
    unrolled<kVecs>([&](auto v) { Avx512::store(out + r * out_stride + v * Avx512::kLanes, sums[r][v]); });
  });
}

template <int kRows, int kVecs>
void multiply_panel_rows(int num_rows, const uint32_t* x, int64_t x_stride, const uint32_t* panel,
                         int num_pairs, bool adds, float* out, int64_t out_stride, PanelFetch& fetch) {
  if constexpr (kRows > 0) {
    if (num_rows == kRows)
      return multiply_panel_tile<kRows, kVecs>(x, x_stride, panel, num_pairs, adds, out, out_stride, fetch);
    multiply_panel_rows<kRows - 1, kVecs>(num_rows, x, x_stride, panel, num_pairs, adds, out, out_stride,
                                          fetch);
  }
}

// out += x W^T, or out = x W^T if `first` is 0, over a panel's input features from `first`. `out` starts at
// the panel's output features. Prefetches `next` at the same time.
inline void multiply_panel(const LinearPart& part, const PairRows& rows, int64_t first,
                           const PanelSource& source, const uint32_t* panel, float* out,
                           const PanelSource& next) {
  const int num_pairs = (source.num_inputs + 1) / 2;
  // Tiles have equal heights: 16 rows are 8 and 8, not 12 and 4.
  const int64_t num_tiles = ceil_div(part.num_rows, int64_t{kPairPanelRows});
  PanelFetch fetch(next, num_tiles * ceil_div(num_pairs, kFetchSteps));
  const auto multiply_rows = source.num_outs == kPairPanelOuts ? &multiply_panel_rows<kPairPanelRows, 2>
                                                               : &multiply_panel_rows<kPairPanelRows, 1>;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = tile * part.num_rows / num_tiles, end = (tile + 1) * part.num_rows / num_tiles;
    multiply_rows(static_cast<int>(end - row), rows.data + row * rows.stride + first / 2, rows.stride, panel,
                  num_pairs, first > 0, out + row * part.out_stride, part.out_stride, fetch);
  }
}

inline void multiply_pairs_packed(const LinearPart& part, const PairRows& rows) {
  alignas(64) uint32_t panel[kPanelPairs * kPairPanelOuts];
  const int64_t vector_outs = part.num_outs / Avx512::kLanes * Avx512::kLanes;
  // Panels have equal lengths.
  const int64_t num_panels = ceil_div(part.in_features, int64_t{kPanelInputs});
  const int64_t panel_inputs = round_up(ceil_div(part.in_features, num_panels), int64_t{kPairInputs});
  const auto panel_at = [&](int64_t first, int64_t out) {
    PanelSource source = {.weights = static_cast<const BF16*>(part.weight) + out * part.in_features + first,
                          .in_features = part.in_features};
    if (first >= part.in_features) return source;
    const auto least = [](int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); };
    source.num_inputs = least(part.in_features - first, panel_inputs);
    source.num_outs = least(vector_outs - out, kPairPanelOuts);
    return source;
  };
  for (int64_t first = 0; first < part.in_features; first += panel_inputs)
    for (int64_t out = 0; out < vector_outs; out += kPairPanelOuts) {
      const PanelSource source = panel_at(first, out);
      const bool last = out + kPairPanelOuts >= vector_outs;
      pack_panel(source, panel);
      multiply_panel(part, rows, first, source, panel, part.out + out,
                     last ? panel_at(first + panel_inputs, 0) : panel_at(first, out + kPairPanelOuts));
    }
  // Last output features, fewer than a vector.
  LinearPart last = part;
  skip_outs(last, vector_outs);
  last.out += vector_outs;
  multiply_pairs_skinny(last, rows);
}

}  // namespace
}  // namespace attend::kernels::cpu
