// Dense layers that normalize their input first, or add to their output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <ostream>
#include <vector>

#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using FusedLinear = NeedsTarget;

constexpr float kEps = 1e-5f;

struct Shape {
  int64_t num_outs, in_features;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.num_outs << " of " << shape.in_features;
}
// Whole and partial groups and chunks of the few-row kernel, more groups than a CTA processes together,
// unsupported widths, and work for more than one CTA.
constexpr Shape kShapes[] = {{64, 512}, {129, 264}, {8, 8}, {27, 45}, {8200, 16}, {200, 1032}};
constexpr int64_t kRows[] = {1, 8, 9, 16, 17, 32, 40};

// Relative error of a value rounded to `dtype`.
double rounding_error(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 1e-6;
}

// Normalized rows of x in float64.
std::vector<double> normalized(const TestTensor& x, const TestTensor& weight) {
  const int64_t dim = weight.size();
  std::vector<double> result = x.values();
  for (int64_t first = 0; first < x.size(); first += dim) {
    double squares = 0.0;
    for (int64_t i = 0; i < dim; ++i) squares += x.at(first + i) * x.at(first + i);
    for (int64_t i = 0; i < dim; ++i)
      result[static_cast<size_t>(first + i)] *=
          weight.at(i) / std::sqrt(squares / static_cast<double>(dim) + static_cast<double>(kEps));
  }
  return result;
}

// Row `row` of `x` times row `out` of `weight`, and the root of the sum of squared terms, which the
// accumulated independent rounding errors are proportional to.
struct Product {
  double value = 0.0, spread = 0.0;

  Product(const std::vector<double>& x, const std::vector<double>& weight, int64_t row, int64_t out,
          int64_t in_features) {
    for (int64_t i = 0; i < in_features; ++i) {
      const double term =
          x[static_cast<size_t>(row * in_features + i)] * weight[static_cast<size_t>(out * in_features + i)];
      value += term;
      spread += term * term;
    }
    spread = std::sqrt(spread);
  }
};

// Inputs of every test for one shape.
struct Tensors {
  TestTensor x, weight, bias, norm, scratch;

  Tensors(const Shape& shape, int64_t num_rows, DType dtype, const Target& target,
          std::optional<DType> norm_dtype = {})
      : x(TestTensor::random({num_rows, shape.in_features}, target.activation_for(dtype), 1, 3.0f)),
        weight(TestTensor::random({shape.num_outs, shape.in_features}, dtype, 2, 0.05f)),
        bias(TestTensor::random({shape.num_outs}, dtype, 3)),
        norm(TestTensor::random({shape.in_features}, norm_dtype.value_or(dtype), 4)),
        scratch({num_rows, shape.in_features}, target.activation_for(dtype)) {}
};

class FusedLinearOfShape : public NeedsTarget, public testing::WithParamInterface<Shape> {};
INSTANTIATE_TEST_SUITE_P(Each, FusedLinearOfShape, testing::ValuesIn(kShapes));

// The dtype of the weights, and f32, in which weights of zero-centered norms are stored.
std::vector<DType> norm_types(DType dtype) {
  if (dtype == DType::kF32) return {dtype};
  return {dtype, DType::kF32};
}

void for_each_case(const std::function<void(const Target&, DType, int64_t num_rows)>& test) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t num_rows : kRows) {
        SCOPED_TRACE(testing::Message() << *target << " " << dtype << " " << num_rows << " rows");
        test(*target, dtype, num_rows);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST_P(FusedLinearOfShape, NormalizesItsInputFirst) {
  const Shape& shape = GetParam();
  for_each_case([&shape](const Target& target, DType dtype, int64_t num_rows) {
    for (const DType norm_dtype : norm_types(dtype)) {
      const Tensors t(shape, num_rows, dtype, target, norm_dtype);
      TestTensor out({num_rows, shape.num_outs}, DType::kF32);
      out.fill(NAN);
      target.linear({.x = t.x,
                     .weight = t.weight,
                     .bias = t.bias,
                     .out = out,
                     .norm = {.weight = t.norm, .eps = kEps, .normalized = t.scratch}});
      const std::vector<double> x = normalized(t.x, t.norm), weight = t.weight.values();
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t o = 0; o < shape.num_outs; o += 1 + shape.num_outs / 200) {
          const Product product(x, weight, row, o, shape.in_features);
          const double expected = product.value + t.bias.at(o);
          ASSERT_NEAR(
              out.at(row * shape.num_outs + o), expected,
              4.0 * rounding_error(t.x.view().dtype) * product.spread + 1e-5 * (1.0 + std::abs(expected)))
              << "row " << row << ", output " << o;
        }
    }
  });
}

TEST_P(FusedLinearOfShape, GatedNormalizesItsInputFirst) {
  const Shape& shape = GetParam();
  for_each_case([&shape](const Target& target, DType dtype, int64_t num_rows) {
    for (const DType norm_dtype : norm_types(dtype)) {
      const Tensors t({2 * shape.num_outs, shape.in_features}, num_rows, dtype, target, norm_dtype);
      const DType x_dtype = t.x.view().dtype;
      const TestTensor gate_up({num_rows, 2 * shape.num_outs}, x_dtype);
      TestTensor out({num_rows, shape.num_outs}, x_dtype);
      out.fill(NAN);
      target.gated_linear({.x = t.x,
                           .weight = t.weight,
                           .bias = {},
                           .gate_up = gate_up,
                           .out = out,
                           .norm = {.weight = t.norm, .eps = kEps, .normalized = t.scratch}});
      const std::vector<double> x = normalized(t.x, t.norm), weight = t.weight.values();
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t o = 0; o < shape.num_outs; o += 1 + shape.num_outs / 200) {
          const Product gate(x, weight, row, o, shape.in_features);
          const Product up(x, weight, row, shape.num_outs + o, shape.in_features);
          const double rounding = 4.0 * rounding_error(x_dtype);
          ASSERT_NEAR(
              out.at(row * shape.num_outs + o), gate.value / (1.0 + std::exp(-gate.value)) * up.value,
              rounding * (1.0 + std::abs(gate.value) + gate.spread) * (1.0 + std::abs(up.value) + up.spread))
              << "row " << row << ", output " << o;
        }
    }
  });
}

TEST_P(FusedLinearOfShape, AccumulatesOnGpusOnly) {
  const Shape& shape = GetParam();
  for_each_case([&shape](const Target& target, DType dtype, int64_t num_rows) {
    const Tensors t(shape, num_rows, dtype, target);
    const DType x_dtype = t.x.view().dtype;
    TestTensor out = TestTensor::random({num_rows, shape.num_outs}, x_dtype, 5);
    const std::vector<double> before = out.values();
    if (target.name() != "gpu") {
      Stream stream;
      EXPECT_EQ(testing_support::error_message(
                    ErrorCode::kUnsupported,
                    [&] {
                      linear({.x = t.x, .weight = t.weight, .bias = {}, .out = out, .accumulate = true},
                             stream);
                    }),
                "accumulate: linear() on cpu does not support it; cuda does");
      return;
    }
    for (const bool with_bias : {false, true}) {
      for (int64_t i = 0; i < out.size(); ++i) out.set(i, static_cast<float>(before[static_cast<size_t>(i)]));
      target.linear({.x = t.x,
                     .weight = t.weight,
                     .bias = with_bias ? t.bias.view() : TensorView{},
                     .out = out,
                     .accumulate = true});
      const std::vector<double> x = t.x.values(), weight = t.weight.values();
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t o = 0; o < shape.num_outs; o += 1 + shape.num_outs / 200) {
          const Product product(x, weight, row, o, shape.in_features);
          const double was = before[static_cast<size_t>(row * shape.num_outs + o)];
          const double bias = with_bias ? t.bias.at(o) : 0.0;
          ASSERT_NEAR(out.at(row * shape.num_outs + o), product.value + bias + was,
                      2.0 * rounding_error(x_dtype) *
                          (std::abs(product.value) + std::abs(bias) + std::abs(was) + product.spread))
              << "row " << row << ", output " << o << (with_bias ? ", with bias" : "");
        }
    }
  });
}

TEST(FusedLinearArguments, RejectsAnOddNumberOfGateAndUpRows) {
  Stream stream;
  const TestTensor x({3, 32}, DType::kF32), weight({33, 32}, DType::kF32), gate_up({3, 33}, DType::kF32),
      out({3, 16}, DType::kF32);
  EXPECT_THAT(testing_support::error_message(
                  ErrorCode::kInvalidArgument,
                  [&] {
                    gated_linear({.x = x, .weight = weight, .bias = {}, .gate_up = gate_up, .out = out},
                                 stream);
                  }),
              testing::HasSubstr("expected equal numbers of gate and up rows"));
}

TEST(FusedLinearArguments, RejectsMismatchedNorms) {
  Stream stream;
  const auto error_text = [&](InputNorm norm, InputNorm next) {
    const TestTensor x({3, 32}, DType::kF32), weight({64, 32}, DType::kF32), out({3, 64}, DType::kF32);
    return testing_support::error_message(ErrorCode::kInvalidArgument, [&] {
      linear({.x = x, .weight = weight, .bias = {}, .out = out, .norm = norm, .next_norm = &next}, stream);
    });
  };
  const TestTensor of_x({32}, DType::kF32), of_out({64}, DType::kF32), like_x({3, 32}, DType::kF32),
      like_out({3, 64}, DType::kF32), squares_of_x({3, 2}, DType::kF32), squares_of_out({3, 4}, DType::kF32),
      squares_in_bf16({3, 4}, DType::kBF16);
  const auto norm = [](const TensorView& weight, const TensorView& normalized, const TensorView& squares,
                       bool deferred) {
    return InputNorm{.weight = weight,
                     .eps = kEps,
                     .normalized = normalized,
                     .partial_squares = squares,
                     .deferred = deferred};
  };
  using testing::StartsWith;
  EXPECT_THAT(error_text(norm(of_x, like_x, {}, /*deferred=*/true), {}),
              StartsWith("norm: a deferred norm requires partial_squares"));
  EXPECT_THAT(error_text(norm(of_x, like_x, squares_of_out, /*deferred=*/false), {}),
              StartsWith("norm.partial_squares"));
  EXPECT_THAT(error_text({}, norm(of_x, like_x, squares_of_x, /*deferred=*/false)),
              StartsWith("next_norm.weight"));
  EXPECT_THAT(error_text({}, norm(of_out, like_x, squares_of_out, /*deferred=*/false)),
              StartsWith("next_norm.normalized"));
  EXPECT_THAT(error_text({}, norm(of_out, like_out, squares_in_bf16, /*deferred=*/false)),
              StartsWith("next_norm.partial_squares"));
}

TEST(FusedLinearArguments, UndeferredNormIsReported) {
  Stream stream;
  const TestTensor x({3, 32}, DType::kF32), weight({64, 32}, DType::kF32), norm_weight({64}, DType::kF32),
      normalized({3, 64}, DType::kF32), squares({3, 4}, DType::kF32), out({3, 64}, DType::kF32);
  for (const int64_t num_rows : {0, 3}) {
    const auto rows = [&](const TestTensor& tensor) { return tensor.view().slice(0, 0, num_rows); };
    const InputNorm next{
        .weight = norm_weight, .eps = kEps, .normalized = rows(normalized), .partial_squares = rows(squares)};
    EXPECT_FALSE(
        linear({.x = rows(x), .weight = weight, .bias = {}, .out = rows(out), .next_norm = &next}, stream))
        << num_rows << " rows";
  }
}

std::vector<double> outputs_of_rows(const Target& target, const Tensors& t, int64_t first, int64_t num_rows,
                                    bool gated) {
  const TensorView x = t.x.view().slice(0, first, first + num_rows);
  const int64_t num_outs = t.weight.view().shape[0] / (gated ? 2 : 1);
  const InputNorm norm{.weight = t.norm, .eps = kEps, .normalized = t.scratch.view().slice(0, 0, num_rows)};
  const TestTensor gate_up({num_rows, 2 * num_outs}, x.dtype);
  TestTensor out({num_rows, num_outs}, x.dtype);
  if (gated) {
    out.fill(NAN);
    target.gated_linear(
        {.x = x, .weight = t.weight, .bias = t.bias, .gate_up = gate_up, .out = out, .norm = norm});
  } else {
    out.fill(2.0f);
    target.linear({.x = x, .weight = t.weight, .bias = t.bias, .out = out, .norm = norm, .accumulate = true});
  }
  return out.values();
}

// Small layers that no library kernel computes.
TEST_F(FusedLinear, IsBatchInvariantForFewRowsOnGpus) {
  const Target& target = *targets().back();
  if (target.name() != "gpu") GTEST_SKIP() << "for GPUs";
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{16, 8}, Shape{272, 264}})
      for (const bool gated : {false, true})
        for (const int64_t num_rows : {5, 16}) {
          const Tensors t(shape, num_rows, dtype, target);
          const std::vector<double> batch = outputs_of_rows(target, t, 0, num_rows, gated);
          for (int64_t row = 0; row < num_rows; ++row) {
            const std::vector<double> single = outputs_of_rows(target, t, row, 1, gated);
            for (size_t o = 0; o < single.size(); ++o)
              ASSERT_NEAR(batch[static_cast<size_t>(row) * single.size() + o], single[o],
                          2.0 * rounding_error(dtype) * std::abs(single[o]) + 1e-6)
                  << dtype << ", " << shape << (gated ? ", gated" : "") << ": output " << o << " of row "
                  << row << " of " << num_rows;
          }
        }
}

// CTAs with one to six groups of eight outputs, and inputs that fill shared memory.
TEST_F(FusedLinear, SupportsLayersThatFillSharedMemory) {
  const Target& target = *targets().back();
  if (target.name() != "gpu") GTEST_SKIP() << "for GPUs";
  for (const Shape& shape : {Shape{1056, 11264}, Shape{2112, 5120}, Shape{4224, 3072}, Shape{6336, 2560}}) {
    TestTensor weight({shape.num_outs, shape.in_features}, DType::kBF16);
    for (int64_t i = 0; i < weight.size(); ++i)
      weight.set(i, 0.01f * static_cast<float>(i * 2654435761 % 1009 - 504) / 504.0f);
    std::vector<double> single;  // results of the first row, which is equal for every number of rows
    for (const int64_t num_rows : {1, 8, 16, 32}) {
      const TestTensor x = TestTensor::random({num_rows, shape.in_features}, DType::kBF16, 1);
      TestTensor out({num_rows, shape.num_outs}, DType::kF32);
      out.fill(NAN);
      target.linear({.x = x, .weight = weight, .bias = {}, .out = out});
      std::vector<double> first = out.values();
      first.resize(static_cast<size_t>(shape.num_outs));
      if (num_rows == 1) single = first;
      // For a single row, W is the other operand, with the same bits. For 32 rows another kernel may be
      // chosen.
      if (num_rows <= 16) {
        ASSERT_EQ(first, single) << shape << ", " << num_rows << " rows";
      }
      for (int64_t row = 0; row < num_rows; row += 7)
        for (int64_t o = row; o < shape.num_outs; o += 311) {
          double expected = 0.0, magnitude = 0.0;
          for (int64_t i = 0; i < shape.in_features; ++i) {
            const double term = x.at(row * shape.in_features + i) * weight.at(o * shape.in_features + i);
            expected += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(out.at(row * shape.num_outs + o), expected, target.linear_tolerance() * magnitude)
              << num_rows << " rows of " << shape.in_features << ", output " << o << " of row " << row;
        }
    }
  }
}

}  // namespace
}  // namespace attend::kernels
