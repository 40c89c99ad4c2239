// out = x W^T for many rows of x, with vectors of 16 lanes. Panels of weights are converted and transposed,
// stay in the L2 cache, and are multiplied by all rows.
//
// Every element of out is one sum over in_features in order, independent of other elements.
#pragma once

#include "attend/kernels/common/cpu/tile_multiply.h"
#include "attend/kernels/gemm/cpu/linear_skinny.h"

namespace attend::kernels::cpu {
namespace {

// Panel shape: [kPanelSteps, kPanelOuts], input features by output features.
constexpr int kPanelSteps = 512;
template <class S>
inline constexpr int kPanelOuts = S::kTileVecs* S::kLanes;

// pack_weights() for weights that are decoded to memory in runs.
template <class S, class Rows>
void pack_runs(const Rows& weights, int64_t out, int64_t step, int num_steps, float* panel) {
  alignas(64) float units[S::kLanes][kUnitElements];
  for (int i = 0; i < num_steps; i += kUnitElements) {
    for (int o = 0; o < S::kLanes; ++o) weights.decode(out + o, step + i, kUnitElements, units[o]);
    for (int j = 0; j < kUnitElements; j += S::kLanes) {
      typename S::F32 rows[S::kLanes];
      for (int o = 0; o < S::kLanes; ++o) rows[o] = S::load(units[o] + j);
      S::transpose(rows);
      for (int s = 0; s < S::kLanes; ++s) S::store(panel + (i + j + s) * kPanelOuts<S>, rows[s]);
    }
  }
}

// panel[i, o] = weight[out + o, step + i] for `num_steps` input features and kLanes output features.
template <class S, class Rows>
void pack_weights(const Rows& weights, int64_t out, int64_t step, int num_steps, float* panel) {
  if constexpr (kDecodesRuns<Rows>)
    return pack_runs<S>(weights, out, step, num_steps, panel);
  else
    for (int i = 0; i < num_steps; i += S::kLanes) {
      const int steps = num_steps - i < S::kLanes ? num_steps - i : S::kLanes;
      typename S::F32 rows[S::kLanes];
      for (int o = 0; o < S::kLanes; ++o) rows[o] = weights.load_in_order(out + o, step + i, steps);
      S::transpose(rows);
      for (int s = 0; s < steps; ++s) S::store(panel + (i + s) * kPanelOuts<S>, rows[s]);
    }
}

// out += x W^T, or out = x W^T if `step` is 0, over kPanelSteps input features from `step`. part.num_outs is
// a multiple of kLanes and at most kPanelsOuts.
template <class S, class Rows>
void multiply_panels(const LinearPart& part, int64_t step, float* panels) {
  // Rows with inputs that stay in the L1 and L2 caches while the loop iterates over the panels.
  constexpr int64_t kRows = 4 * S::kTileRows;
  float keep_sums[kRows];
  for (float& factor : keep_sums) factor = 1.0f;
  const int64_t rest = part.in_features - step;
  const int num_steps = rest < kPanelSteps ? static_cast<int>(rest) : kPanelSteps;
  const Rows weights(part);
  for (int64_t out = 0; out < part.num_outs; out += S::kLanes)
    pack_weights<S>(weights, out, step, num_steps,
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

// Multiplies the last output features, starting at `first`: fewer than a vector.
template <class S, class Rows>
void multiply_last_outs(const LinearPart& part, int64_t first) {
  LinearPart rest = part;
  skip_outs(rest, first);
  rest.out += first;
  multiply_skinny<S, Rows>(rest);
}

// Maximum output features per task, so that the panels (256 KiB) fit on a thread's stack. Maximum rows, so
// that their inputs and sums stay in the L2 cache.
constexpr int64_t kPanelsOuts = 128, kPanelsRows = 256;

template <class S, class Rows>
void multiply_packed(const LinearPart& part) {
  alignas(64) float panels[kPanelsOuts * kPanelSteps];
  LinearPart whole_vectors = part;
  whole_vectors.num_outs = part.num_outs / S::kLanes * S::kLanes;
  for (int64_t step = 0; step < part.in_features; step += kPanelSteps)
    multiply_panels<S, Rows>(whole_vectors, step, panels);
  multiply_last_outs<S, Rows>(part, whole_vectors.num_outs);
}

}  // namespace
}  // namespace attend::kernels::cpu
