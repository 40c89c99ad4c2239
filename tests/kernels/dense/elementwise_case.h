// Widths of rows, rows of a tensor, and RoPE angles for tests of elementwise operations.
#pragma once

#include <cmath>
#include <complex>
#include <vector>

#include "tests/kernels/dense/test_tensor.h"

namespace attend::testing_support {

// Every remainder of a vector, and rows of many vectors.
inline constexpr int64_t kDims[] = {1,  2,  3,  4,  5,  7,  8,  9,  12, 15, 16,  17,  20,
                                    24, 31, 32, 33, 47, 48, 63, 64, 65, 96, 127, 300, 4096};

inline std::vector<double> row_values(const TestTensor& tensor, int64_t row, int64_t dim) {
  std::vector<double> values;
  for (int64_t i = 0; i < dim; ++i) values.push_back(tensor.at(row * dim + i));
  return values;
}

// cos and sin of position * angle(i), and the angles.
struct Angles {
  Angles(int64_t num_positions, int64_t half)
      : cos({num_positions, half}, DType::kF32), sin({num_positions, half}, DType::kF32) {
    for (int64_t position = 0; position < num_positions; ++position)
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / half);
        cos.set(position * half + i, static_cast<float>(std::cos(angle)));
        sin.set(position * half + i, static_cast<float>(std::sin(angle)));
      }
  }
  // Rotation of pair i as a complex number.
  std::complex<double> rotation(int64_t position, int64_t i) const {
    const int64_t half = cos.view().shape[1];
    return {cos.at(position * half + i), sin.at(position * half + i)};
  }
  TestTensor cos, sin;
};

}  // namespace attend::testing_support
