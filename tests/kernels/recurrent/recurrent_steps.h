// Sequences of recurrent layers, divided into steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "attend/kernels/recurrent/recurrent.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::test {

inline void fill_random(const TensorView& view, unsigned seed, float low = -1.0f, float high = 1.0f) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(low, high);
  for (float& x : view.span<float>()) x = values(generator);
}

inline void fill(const TensorView& view, float value) {
  for (float& x : view.span<float>()) x = value;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Largest difference relative to the largest magnitude; infinity if a value is not finite.
inline double relative_error(const TensorView& actual, const TensorView& expected) {
  double error = 0.0, largest = 1e-30;
  for (int64_t i = 0; i < expected.num_elements(); ++i) {
    const double x = double{actual.span<float>()[static_cast<size_t>(i)]};
    const double y = double{expected.span<float>()[static_cast<size_t>(i)]};
    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(x - y));
    largest = std::max(largest, std::abs(y));
  }
  return error / largest;
}

// Arrays of a RecurrentBatch.
struct Batch {
  std::vector<int32_t> rows, seqlen_kv, cu_seqlen_q{0}, load_slots, save_slots;

  // Adds tokens [first, first + num_new) of a request.
  void add(int32_t row, int32_t first, int32_t num_new, int32_t load = 0) {
    rows.push_back(row);
    seqlen_kv.push_back(first + num_new);
    cu_seqlen_q.push_back(cu_seqlen_q.back() + num_new);
    load_slots.push_back(load);
    save_slots.resize(static_cast<size_t>(cu_seqlen_q.back()));
  }
  RecurrentBatch view() const { return {rows, seqlen_kv, cu_seqlen_q, load_slots, save_slots}; }
};

}  // namespace attend::kernels::test
