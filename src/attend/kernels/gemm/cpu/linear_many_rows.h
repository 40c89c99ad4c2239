// out = x W^T for many rows of x: some panels of weights are converted and transposed, stay in the L2 cache,
// and are multiplied with all rows.
//
// Every element of out is one sum over in_features in order, whatever else is computed with it.
#pragma once

#include "attend/kernels/common/cpu/tile_multiply.h"
#include "attend/kernels/gemm/cpu/linear_few_rows.h"

namespace attend::kernels::cpu {
namespace {

// A panel is [kPanelSteps, kPanelOuts]: input features by output features.
constexpr int kPanelSteps = 512;
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

// out += x W^T, or out = x W^T when `step` is 0, over kPanelSteps input features from `step` on.
// part.num_outs is a multiple of kLanes, and at most kManyRowsOuts.
template <class S, class T>
void multiply_panels(const LinearPart& part, int64_t step, float* panels) {
  // Rows whose inputs stay in the nearest caches while the panels take turns.
  constexpr int64_t kRows = 4 * S::kTileRows;
  float keep_sums[kRows];
  for (float& factor : keep_sums) factor = 1.0f;
  const int64_t rest = part.in_features - step;
  const int num_steps = rest < kPanelSteps ? static_cast<int>(rest) : kPanelSteps;
  const T* const weight = static_cast<const T*>(part.weight) + step;
  for (int64_t out = 0; out < part.num_outs; out += S::kLanes)
    pack_weights<S>(weight + out * part.in_features, part.in_features, num_steps,
                    panels + out / kPanelOuts<S> * kPanelOuts<S> * kPanelSteps + out % kPanelOuts<S>);
  for (int64_t row = 0; row < part.num_rows; row += kRows) {
    const int64_t rows = part.num_rows - row < kRows ? part.num_rows - row : kRows;
    for (int64_t out = 0; out < part.num_outs; out += kPanelOuts<S>) {
      const int64_t outs = part.num_outs - out < kPanelOuts<S> ? part.num_outs - out : kPanelOuts<S>;
      multiply<F32Mac<S>>({.a = part.x + row * part.x_stride + step,
                           .a_stride = part.x_stride,
                           .b = panels + out * kPanelSteps,
                           .b_stride = kPanelOuts<S>,
                           .c = part.out + row * part.out_stride + out,
                           .c_stride = part.out_stride,
                           .c_scale = step == 0 ? nullptr : keep_sums,
                           .num_steps = num_steps},
                          static_cast<int>(rows), static_cast<int>(outs / S::kLanes));
    }
  }
}

// At most kManyRowsOuts output features, so that the panels (256 KiB) fit a thread's stack.
template <class S, class T>
void multiply_many_rows(const LinearPart& part) {
  alignas(64) float panels[kManyRowsOuts * kPanelSteps];
  LinearPart whole_vectors = part;
  whole_vectors.num_outs = part.num_outs / S::kLanes * S::kLanes;
  for (int64_t step = 0; step < part.in_features; step += kPanelSteps)
    multiply_panels<S, T>(whole_vectors, step, panels);
  // Less than a vector of output features.
  LinearPart rest = part;
  rest.weight = static_cast<const T*>(part.weight) + whole_vectors.num_outs * part.in_features;
  rest.out += whole_vectors.num_outs;
  rest.num_outs -= whole_vectors.num_outs;
  multiply_few_rows<S, T>(rest);
}

}  // namespace
}  // namespace attend::kernels::cpu
