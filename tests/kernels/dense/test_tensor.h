// Tensors for tests of the dense kernels: memory of exactly the required size, so that AddressSanitizer
// detects reads past the end; random values; and values as float64.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"

namespace attend::testing_support {

class TestTensor {
 public:
  TestTensor(std::initializer_list<int64_t> shape, DType dtype)
      : view_(TensorView::contiguous(nullptr, dtype, shape)), bytes_(new std::byte[view_.num_bytes()]()) {
    view_.data = bytes_.get();
  }

  // Normally distributed values, rounded to the dtype.
  static TestTensor random(std::initializer_list<int64_t> shape, DType dtype, uint64_t seed,
                           float deviation = 1.0f) {
    TestTensor made(shape, dtype);
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    for (int64_t i = 0; i < made.view_.num_elements(); ++i) made.set(i, normal(generator));
    return made;
  }

  operator const TensorView&() const { return view_; }  // NOLINT: implicit conversion is intended
  operator Weight() const { return view_; }             // NOLINT: implicit conversion is intended
  const TensorView& view() const { return view_; }
  int64_t size() const { return view_.num_elements(); }

  template <class T>
  View<T> span() const {
    return view_.span<T>();
  }

  // Element i in row-major order.
  void set(int64_t i, float value) {
    visit_float_dtype(view_.dtype, [&]<class T>(TypeTag<T>) { view_.as<T>()[i] = T(value); });
  }
  double at(int64_t i) const {
    double value = 0;
    visit_float_dtype(view_.dtype, [&]<class T>(TypeTag<T>) {
      value = static_cast<double>(static_cast<float>(view_.as<T>()[i]));
    });
    return value;
  }
  void fill(float value) {
    for (int64_t i = 0; i < size(); ++i) set(i, value);
  }

  // All elements as float64.
  std::vector<double> values() const {
    std::vector<double> result(static_cast<size_t>(size()));
    for (int64_t i = 0; i < size(); ++i) result[static_cast<size_t>(i)] = at(i);
    return result;
  }

 private:
  TensorView view_;
  std::unique_ptr<std::byte[]> bytes_;
};

inline constexpr DType kWeightTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace attend::testing_support
