// Products with activations in int8 (LinearArgs::rounds_x), on every instruction set of the CPU.
#include "attend/kernels/gemm/cpu/int8/int8_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/dense/cpu/block_weight.h"
#include "tests/kernels/dense/linear_with_workspace.h"
#include "tests/kernels/dense/quantized_weight.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::BlockWeight;
using testing_support::for_each_block_format;
using testing_support::Format;
using testing_support::kFormats;
using testing_support::linear_with_workspace;
using testing_support::random_weight;
using testing_support::TestTensor;
using testing_support::TestWeight;

constexpr int64_t kOuts = 45;

// Weights in every format that has int8 products; `fn` also receives the scale that makes their elements
// integers.
void for_each_weight(bool unit_scales, const std::function<void(const Weight&)>& fn) {
  for_each_block_format([&](BlockFormat format) {
    // Rows that are not a multiple of 256 elements, where blocks are small.
    BlockWeight weight(format, kOuts, block_layout(format).elements == 32 ? 416 : 512);
    if (unit_scales) weight.set_scales_to_one();
    fn(weight.view);
  });
  for (const Format& format : kFormats) {
    if (format.format == WeightFormat::kFp8) continue;
    SCOPED_TRACE(testing::PrintToString(format));
    const std::unique_ptr<TestWeight> weight = random_weight(format, kOuts, 384);
    if (unit_scales && format.scale_dtype == DType::kU8)
      std::fill_n(static_cast<uint8_t*>(weight->scales.view().data), weight->scales.size(), uint8_t{127});
    else if (unit_scales)
      weight->scales.fill(1.0f);
    fn(weight->view);
  }
}

TestTensor multiply(const TestTensor& x, const Weight& weight, Isa isa, bool batch_invariant = false) {
  TestTensor out({x.view().shape[0], weight.out_features()}, DType::kF32);
  linear_with_workspace({.x = x,
                         .weight = weight,
                         .bias = {},
                         .out = out,
                         .batch_invariant = batch_invariant,
                         .rounds_x = true},
                        isa);
  return out;
}

// Values that quantization does not change: one of +-127 per 32 inputs, and zeros, so that every sum is an
// integer below 2^24, and the order of additions does not matter. The largest codes and inputs meet in some
// product.
TEST(Int8Linear, SumsAreExact) {
  for_each_weight(true, [](const Weight& weight) {
    ASSERT_TRUE(cpu::has_int8_products(weight));
    for (const int64_t num_rows : {1, 2, 3, 4, 5, 7, 66}) {
      const int64_t in_features = weight.in_features();
      TestTensor x({num_rows, in_features}, DType::kF32);
      std::mt19937 random(static_cast<unsigned>(num_rows));
      for (int64_t unit = 0; unit < num_rows * in_features; unit += 32)
        x.set(unit + random() % 32, random() % 2 == 0 ? 127.0f : -127.0f);
      for (const Isa isa : cpu::available_isas()) {
        const TestTensor out = multiply(x, weight, isa);
        for (int64_t o = 0; o < kOuts; ++o) {
          const std::vector<double> row = reference::weight_row(weight, o);
          for (int64_t r = 0; r < num_rows; ++r) {
            double sum = 0.0;
            for (int64_t i = 0; i < in_features; ++i)
              sum += x.at(r * in_features + i) * row[static_cast<size_t>(i)];
            ASSERT_EQ(out.at(r * kOuts + o), sum)
                << isa << " row " << r << " of " << num_rows << ", output " << o;
          }
        }
      }
    }
  });
}

TEST(Int8Linear, SumsOfManyRowsAreExactWithinFloat32) {
  for_each_weight(false, [](const Weight& weight) {
    const TestTensor x = TestTensor::random({40, weight.in_features()}, DType::kF32, 7);
    for (const Isa isa : cpu::available_isas()) {
      const TestTensor many = multiply(x, weight, isa),
                       few = multiply(x, weight, isa, /*batch_invariant=*/true);
      double square = 0.0;
      for (const double value : few.values()) square += value * value;
      const double typical = std::sqrt(square / static_cast<double>(few.size()));
      for (int64_t i = 0; i < many.size(); ++i)
        ASSERT_NEAR(many.at(i), few.at(i), 1e-5 * typical) << isa << " " << i;
    }
  });
}

// An input changes by at most half of its unit's scale, which is max |x| / 127.
TEST(Int8Linear, DiffersFromExactProductsByAtMostTheRoundingOfX) {
  for_each_weight(false, [](const Weight& weight) {
    const int64_t in_features = weight.in_features(), num_rows = 9;
    const TestTensor x = TestTensor::random({num_rows, in_features}, DType::kF32, 3);
    const auto* order = static_cast<const int32_t*>(weight.input_order.data);
    for (const Isa isa : cpu::available_isas()) {
      const TestTensor out = multiply(x, weight, isa);
      for (int64_t o = 0; o < kOuts; ++o) {
        const std::vector<double> row = reference::weight_row(weight, o);
        for (int64_t r = 0; r < num_rows; ++r) {
          double sum = 0.0, magnitude = 0.0, bound = 0.0;
          for (int64_t unit = 0; unit < in_features; unit += 32) {
            double maximum = 0.0, weights = 0.0;
            for (int64_t i = unit; i < unit + 32; ++i) {
              // weight_row() returns elements in the order of x; units are those of the stored columns.
              const int64_t input = order == nullptr ? i : order[i];
              const double value = x.at(r * in_features + input), element = row[static_cast<size_t>(input)];
              sum += value * element;
              magnitude += std::abs(value * element);
              maximum = std::max(maximum, std::abs(value));
              weights += std::abs(element);
            }
            bound += maximum / 254.0 * weights;
          }
          // Float32 sums include offsets of unsigned codes, which are up to 32 times the elements' scale.
          ASSERT_NEAR(out.at(r * kOuts + o), sum, bound + 1e-5 * magnitude)
              << isa << " row " << r << " output " << o;
        }
      }
    }
  });
}

TEST(Int8Linear, BitsOfARowDependOnlyOnThatRow) {
  for_each_weight(false, [](const Weight& weight) {
    const int64_t in_features = weight.in_features();
    const TestTensor x = TestTensor::random({601, in_features}, DType::kF32, 4);
    for (const Isa isa : cpu::available_isas()) {
      const bool portable = isa == Isa::kPortable;
      for (const int64_t num_rows :
           {int64_t{2}, int64_t{7}, int64_t{65}, portable ? int64_t{66} : int64_t{601}}) {
        TestTensor rows({num_rows, in_features}, DType::kF32), one({1, in_features}, DType::kF32);
        for (int64_t i = 0; i < rows.size(); ++i) rows.set(i, static_cast<float>(x.at(i)));
        // Without batch_invariant, more rows are added in another order.
        const TestTensor all = multiply(rows, weight, isa, num_rows > 32);
        for (const int64_t row : {int64_t{0}, num_rows / 2, num_rows - 1}) {
          for (int64_t i = 0; i < in_features; ++i)
            one.set(i, static_cast<float>(x.at(row * in_features + i)));
          for (const bool batch_invariant : {false, true}) {
            const TestTensor out = multiply(one, weight, isa, batch_invariant);
            for (int64_t o = 0; o < kOuts; ++o)
              ASSERT_EQ(out.at(o), all.at(row * kOuts + o)) << isa << " row " << row << " of " << num_rows;
          }
        }
      }
    }
  });
}

TEST(Int8Linear, BitsDoNotDependOnTheNumberOfThreads) {
  const BlockWeight weight(BlockFormat::kQ4K, 1021, 512);
  const TestTensor x = TestTensor::random({70, 512}, DType::kF32, 5);
  const int threads = num_threads();
  for (const Isa isa : cpu::available_isas()) {
    std::vector<std::vector<double>> results;
    for (const int count : {1, 2, 3}) {
      set_num_threads(count);
      results.push_back(multiply(x, weight.view, isa).values());
    }
    EXPECT_EQ(results[1], results[0]) << isa;
    EXPECT_EQ(results[2], results[0]) << isa;
  }
  set_num_threads(threads);
}

TEST(Int8Linear, KeepsInfinitiesAndNansInTheirRows) {
  const BlockWeight weight(BlockFormat::kQ4_0, kOuts, 64);
  TestTensor x = TestTensor::random({3, 64}, DType::kF32, 6);
  x.set(5, std::numeric_limits<float>::infinity());
  x.set(64 + 40, std::numeric_limits<float>::quiet_NaN());
  for (const Isa isa : cpu::available_isas()) {
    const TestTensor out = multiply(x, weight.view, isa);
    for (int64_t o = 0; o < kOuts; ++o) {
      EXPECT_TRUE(std::isnan(out.at(o))) << isa;
      EXPECT_TRUE(std::isnan(out.at(kOuts + o))) << isa;
      EXPECT_TRUE(std::isfinite(out.at(2 * kOuts + o))) << isa;
    }
  }
}

TEST(Int8Linear, TreatsTinyInputsAsZero) {
  const BlockWeight weight(BlockFormat::kQ8_0, kOuts, 32);
  TestTensor x({1, 32}, DType::kF32);
  x.set(3, 0x1p-120f);
  x.set(4, -0x1p-140f);
  for (const Isa isa : cpu::available_isas()) {
    const TestTensor out = multiply(x, weight.view, isa);
    for (int64_t o = 0; o < kOuts; ++o) EXPECT_EQ(out.at(o), 0.0) << isa;
  }
}

// Weights that are not whole units of 32 inputs, and fp8, are multiplied by exact inputs.
TEST(Int8Linear, IsNotUsedForOtherWeights) {
  const std::unique_ptr<TestWeight> odd = random_weight({WeightFormat::kInt8, 1, 0, DType::kF32}, kOuts, 40);
  EXPECT_FALSE(cpu::has_int8_products(odd->view));
  const std::unique_ptr<TestWeight> small =
      random_weight({WeightFormat::kInt8, 1, 16, DType::kF32}, kOuts, 64);
  EXPECT_FALSE(cpu::has_int8_products(small->view));
  const std::unique_ptr<TestWeight> fp8 = random_weight(kFormats[0], kOuts, 64);
  EXPECT_FALSE(cpu::has_int8_products(fp8->view));
}

}  // namespace
}  // namespace attend::kernels
