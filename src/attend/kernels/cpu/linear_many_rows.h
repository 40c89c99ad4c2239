// out = x W^T for many rows of x: a panel of weights (kPanelOuts output features, kPanelSteps input features)
// is converted and transposed once, stays in the L1 cache, and is multiplied with all rows.
//
// Every element of out is one sum over in_features in order, whatever else is computed with it.
#pragma once

#include "attend/kernels/cpu/linear_few_rows.h"
#include "attend/kernels/cpu/tile_multiply.h"

namespace attend::kernels::cpu {
namespace {

constexpr int kPanelSteps = 128;

template <class S>
inline constexpr int kPanelOuts = S::kTileVecs* S::kLanes;

// panel[i, o] = weight[o, i] for `num_steps` input features and kLanes output features.
template <class S, class T>
void pack_weights(const T* weight, int64_t in_features, int num_steps, float* panel) {
  for (int i = 0; i < num_steps; i += S::kLanes) {
    const int steps = num_steps - i < S::kLanes ? num_steps - i : S::kLanes;
    typename S::F32 rows[S::kLanes];
    for (int o = 0; o < S::kLanes; ++o) rows[o] = S::load_first(weight + o * in_features + i, steps);
    S::transpose(rows);
    for (int s = 0; s < steps; ++s) S::store(panel + (i + s) * kPanelOuts<S>, rows[s]);
  }
}

// `num_vecs` vectors of output features from `out` on.
template <class S, class T>
void multiply_panel(const LinearPart& part, int64_t out, int num_vecs) {
  // Rows whose inputs, [kRows, kPanelSteps], lie in the L1 cache beside the panel.
  constexpr int64_t kRows = 4 * S::kTileRows;
  float keep_sums[kRows];
  for (float& factor : keep_sums) factor = 1.0f;
  alignas(64) float panel[kPanelSteps * kPanelOuts<S>];
  for (int64_t step = 0; step < part.in_features; step += kPanelSteps) {
    const int64_t rest = part.in_features - step;
    const int num_steps = rest < kPanelSteps ? static_cast<int>(rest) : kPanelSteps;
    const T* const weight = static_cast<const T*>(part.weight) + out * part.in_features + step;
    for (int v = 0; v < num_vecs; ++v)
      pack_weights<S>(weight + v * S::kLanes * part.in_features, part.in_features, num_steps,
                      panel + v * S::kLanes);
    for (int64_t row = 0; row < part.num_rows; row += kRows) {
      const Product<float> product = {.a = part.x + row * part.x_stride + step,
                                      .a_stride = part.x_stride,
                                      .b = panel,
                                      .b_stride = kPanelOuts<S>,
                                      .c = part.out + row * part.out_stride + out,
                                      .c_stride = part.out_stride,
                                      .c_scale = step == 0 ? nullptr : keep_sums,
                                      .num_steps = num_steps};
      const int64_t rows = part.num_rows - row < kRows ? part.num_rows - row : kRows;
      multiply<F32Mac<S>>(product, static_cast<int>(rows), num_vecs);
    }
  }
}

template <class S, class T>
void multiply_many_rows(const LinearPart& part) {
  int64_t out = 0;
  for (; out + S::kLanes <= part.num_outs;) {
    const int64_t vecs = (part.num_outs - out) / S::kLanes;
    const int num_vecs = vecs < S::kTileVecs ? static_cast<int>(vecs) : S::kTileVecs;
    multiply_panel<S, T>(part, out, num_vecs);
    out += num_vecs * S::kLanes;
  }
  if (out == part.num_outs) return;
  // Less than a vector of output features.
  LinearPart rest = part;
  rest.weight = static_cast<const T*>(part.weight) + out * part.in_features;
  rest.out += out;
  rest.num_outs -= out;
  multiply_few_rows<S, T>(rest);
}

}  // namespace
}  // namespace attend::kernels::cpu
