// Conversions of every instruction set, compared with the value types of tensor/dtype.h that define them.
#include "attend/kernels/common/cpu/row_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace attend::kernels::cpu {
namespace {

// Every bit pattern of T in ascending order.
template <class T>
std::vector<T> all_values() {
  std::vector<T> values(size_t{1} << (8 * sizeof(T)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = T::from_bits(static_cast<decltype(T::bits)>(i));
  return values;
}

template <class T>
void expect_converts_exactly(Isa isa) {
  const std::vector<T> values = all_values<T>();
  std::vector<float> wide(values.size());
  row_kernels(isa).store(values.data(), dtype_of<T>, wide.data(), DType::kF32, 1.0f,
                         static_cast<int>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const float expected = static_cast<float>(values[i]);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(wide[i])) << isa << ' ' << dtype_of<T> << " bits " << i;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected))
          << isa << ' ' << dtype_of<T> << " bits " << i;
  }
}

TEST(RowKernels, ConvertEveryBitPatternExactly) {
  for (Isa isa : available_isas()) {
    expect_converts_exactly<F16>(isa);
    expect_converts_exactly<BF16>(isa);
    expect_converts_exactly<F8E4M3>(isa);
    expect_converts_exactly<F8E5M2>(isa);
  }
}

// Floats with random bits, values of T, midpoints between neighboring values of T, and floats next to
// midpoints.
template <class T>
std::vector<float> hard_floats() {
  std::mt19937 random(7);
  std::vector<float> floats;
  for (int i = 0; i < 100000; ++i) floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (int i = 0; i < 40000; ++i) {
    const auto bits = static_cast<decltype(T::bits)>(random());
    const float low = static_cast<float>(T::from_bits(bits));
    const float high = static_cast<float>(T::from_bits(static_cast<decltype(T::bits)>(bits + 1)));
    const float half = low / 2 + high / 2;
    for (float x : {low, half, std::nextafter(half, low), std::nextafter(half, high)}) floats.push_back(x);
  }
  for (float x :
       {0.0f, -0.0f, 448.0f, 464.0f, 465.0f, 57344.0f, 61440.0f, 65520.0f, 3e38f, INFINITY, -INFINITY, NAN})
    floats.push_back(x);
  return floats;
}

template <class T>
void expect_narrows_as_defined(Isa isa) {
  const std::vector<float> floats = hard_floats<T>();
  std::vector<T> narrow(floats.size());
  row_kernels(isa).store(floats.data(), DType::kF32, narrow.data(), dtype_of<T>, 1.0f,
                         static_cast<int>(floats.size()));
  for (size_t i = 0; i < floats.size(); ++i) {
    const T expected(floats[i]);
    if (std::isnan(floats[i]))
      ASSERT_TRUE(std::isnan(static_cast<float>(narrow[i]))) << isa << ' ' << dtype_of<T>;
    else
      ASSERT_EQ(narrow[i].bits, expected.bits) << isa << ' ' << dtype_of<T> << " of " << floats[i];
  }
}

TEST(RowKernels, RoundToNearestEvenAndSaturateFp8) {
  for (Isa isa : available_isas()) {
    expect_narrows_as_defined<F16>(isa);
    expect_narrows_as_defined<BF16>(isa);
    expect_narrows_as_defined<F8E4M3>(isa);
    expect_narrows_as_defined<F8E5M2>(isa);
  }
}

TEST(RowKernels, DivideByTheScaleBeforeRounding) {
  for (Isa isa : available_isas())
    for (float scale : {0.37f, 3.0f}) {
      std::vector<float> x(1000);
      std::mt19937 random(3);
      for (float& value : x) value = std::normal_distribution<float>(0, 2)(random);
      std::vector<F8E4M3> stored(x.size());
      row_kernels(isa).store(x.data(), DType::kF32, stored.data(), DType::kF8E4M3, scale, 1000);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(stored[i].bits, F8E4M3(x[i] / scale).bits) << isa << ' ' << x[i] << " / " << scale;
    }
}

TEST(RowKernels, WriteNothingAfterTheRow) {
  for (Isa isa : available_isas())
    for (int n = 0; n < 40; ++n) {
      const std::vector<float> x(64, 1.0f);
      std::vector<uint8_t> bytes(256, 0xab);
      row_kernels(isa).store(x.data(), DType::kF32, bytes.data(), DType::kBF16, 1.0f, n);
      EXPECT_EQ(bytes[static_cast<size_t>(2 * n)], 0xab) << isa << ' ' << n;
      row_kernels(isa).store(x.data(), DType::kF32, bytes.data() + 128, DType::kF8E5M2, 1.0f, n);
      EXPECT_EQ(bytes[static_cast<size_t>(128 + n)], 0xab) << isa << ' ' << n;
    }
}

}  // namespace
}  // namespace attend::kernels::cpu
