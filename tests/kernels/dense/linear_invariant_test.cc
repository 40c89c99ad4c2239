// batch_invariant: a row of a dense layer has the same bits by itself and at any position in any batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using InvariantLinear = NeedsTarget;

struct Shape {
  int64_t num_outs, in_features;
};
// Whole tiles and groups, partial ones, and less than one; widths that tensor cores do not support; fewer
// chunks of inputs than parts, and several per part. The last three, which take a CPU seconds, have more
// large tiles than a GPU has SMs.
constexpr Shape kShapes[] = {{64, 512},   {208, 2056}, {129, 264}, {8, 8},      {27, 45},
                             {200, 2056}, {8200, 16},  {6000, 72}, {5700, 1160}};
constexpr size_t kNumGpuShapes = 3;
// Rows of the whole batch: several of the largest GPU tiles of 128 and a partial one; CPU tiles are smaller.
constexpr int64_t kGpuRows = 391, kCpuRows = 138;
// First row and number of rows within the whole batch; covers all kernels and all remainders.
constexpr std::pair<int64_t, int64_t> kBatches[] = {
    {0, 1},    {390, 1}, {137, 1}, {5, 2},   {17, 8},  {1, 9},   {40, 16},  {7, 17}, {90, 32},
    {300, 32}, {2, 33},  {11, 64}, {3, 100}, {0, 128}, {9, 129}, {50, 256}, {1, 300}};
constexpr float kEps = 1e-5f;

bool is_gpu(const Target& target) { return target.name() == "gpu"; }

int64_t rows_for(const Target& target) { return is_gpu(target) ? kGpuRows : kCpuRows; }

std::span<const Shape> shapes_for(const Target& target) {
  const std::span<const Shape> all = kShapes;
  return is_gpu(target) ? all : all.first(all.size() - kNumGpuShapes);
}

struct Layer {
  TestTensor x, weight, bias, norm, before;

  Layer(const Shape& shape, DType dtype, const Target& target, int64_t num_weight_rows)
      : x(TestTensor::random({rows_for(target), shape.in_features}, target.activation_for(dtype), 1)),
        weight(TestTensor::random({num_weight_rows, shape.in_features}, dtype, 2)),
        bias(TestTensor::random({num_weight_rows}, dtype, 3)),
        norm(TestTensor::random({shape.in_features}, dtype, 4)),
        before(TestTensor::random({rows_for(target), shape.num_outs}, target.activation_for(dtype), 5)) {}
};

// Computes rows first to first + num_rows - 1 of a layer's x.
using Compute = std::vector<std::byte> (*)(const Target&, const Layer&, int64_t first, int64_t num_rows);

std::vector<std::byte> bytes_of(const TensorView& view) {
  const auto* const begin = static_cast<const std::byte*>(view.data);
  return {begin, begin + view.num_bytes()};
}

std::vector<std::byte> plain(const Target& target, const Layer& layer, int64_t first, int64_t num_rows) {
  const TestTensor out({num_rows, layer.weight.view().shape[0]}, DType::kF32);
  target.linear({.x = layer.x.view().slice(0, first, first + num_rows),
                 .weight = layer.weight,
                 .bias = layer.bias,
                 .out = out,
                 .batch_invariant = true});
  return bytes_of(out);
}

std::vector<std::byte> normalized(const Target& target, const Layer& layer, int64_t first, int64_t num_rows) {
  const TensorView x = layer.x.view().slice(0, first, first + num_rows);
  const TestTensor out({num_rows, layer.weight.view().shape[0]}, x.dtype);
  const TestTensor scratch({num_rows, x.shape[1]}, x.dtype);
  target.linear({.x = x,
                 .weight = layer.weight,
                 .bias = {},
                 .out = out,
                 .batch_invariant = true,
                 .norm = {.weight = layer.norm, .eps = kEps, .normalized = scratch}});
  return bytes_of(out);
}

std::vector<std::byte> added(const Target& target, const Layer& layer, int64_t first, int64_t num_rows) {
  const int64_t num_outs = layer.weight.view().shape[0];
  TestTensor out({num_rows, num_outs}, layer.before.view().dtype);
  for (int64_t i = 0; i < out.size(); ++i)
    out.set(i, static_cast<float>(layer.before.at(first * num_outs + i)));
  target.linear({.x = layer.x.view().slice(0, first, first + num_rows),
                 .weight = layer.weight,
                 .bias = layer.bias,
                 .out = out,
                 .batch_invariant = true,
                 .accumulate = true});
  return bytes_of(out);
}

std::vector<std::byte> gated(const Target& target, const Layer& layer, int64_t first, int64_t num_rows) {
  const TensorView x = layer.x.view().slice(0, first, first + num_rows);
  const int64_t num_outs = layer.weight.view().shape[0];
  const TestTensor gate_up({num_rows, num_outs}, x.dtype), out({num_rows, num_outs / 2}, x.dtype);
  target.gated_linear({.x = x,
                       .weight = layer.weight,
                       .bias = layer.bias,
                       .gate_up = gate_up,
                       .out = out,
                       .batch_invariant = true});
  return bytes_of(out);
}

void expect_invariant(const Target& target, DType dtype, Compute compute, int weight_rows_per_out = 1) {
  const int64_t rows = rows_for(target);
  for (const Shape& shape : shapes_for(target)) {
    const Layer layer(shape, dtype, target, weight_rows_per_out * shape.num_outs);
    const std::vector<std::byte> all = compute(target, layer, 0, rows);
    const size_t row_bytes = all.size() / static_cast<size_t>(rows);
    for (const auto& [first, num_rows] : kBatches) {
      if (first + num_rows > rows) continue;
      const std::vector<std::byte> some = compute(target, layer, first, num_rows);
      ASSERT_EQ(std::memcmp(some.data(), all.data() + static_cast<size_t>(first) * row_bytes, some.size()), 0)
          << target << " " << dtype << ": " << shape.num_outs << " of " << shape.in_features << ", rows "
          << first << " to " << first + num_rows - 1;
    }
  }
}

TEST_F(InvariantLinear, BitsOfARowDependOnThatRowOnly) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes) expect_invariant(*target, dtype, plain);
}

TEST_F(InvariantLinear, BitsOfANormalizedRowDependOnThatRowOnly) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes) expect_invariant(*target, dtype, normalized);
}

TEST_F(InvariantLinear, BitsOfARowDependOnThatRowOnlyIfTheOutputIsAdded) {
  const Target& target = *targets().back();
  if (!is_gpu(target)) GTEST_SKIP() << "for GPUs";
  for (const DType dtype : kWeightTypes) expect_invariant(target, dtype, added);
}

TEST_F(InvariantLinear, BitsOfAGatedRowDependOnThatRowOnly) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes) expect_invariant(*target, dtype, gated, 2);
}

// Sanitizers do not detect tiles that fail to wait for their copies.
TEST_F(InvariantLinear, ProducesTheSameBitsAHundredTimesOnGpus) {
  const Target& target = *targets().back();
  if (!is_gpu(target)) GTEST_SKIP() << "for GPUs";
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{200, 2056}, Shape{5700, 264}}) {
      const Layer layer(shape, dtype, target, shape.num_outs);
      const std::vector<std::byte> first = plain(target, layer, 0, kGpuRows);
      for (int repeat = 0; repeat < 100; ++repeat)
        ASSERT_EQ(std::memcmp(plain(target, layer, 0, kGpuRows).data(), first.data(), first.size()), 0)
            << dtype << ", " << shape.num_outs << " of " << shape.in_features << ", repeat " << repeat;
    }
}

// One small tile, and more large tiles than a GPU has SMs.
TEST_F(InvariantLinear, ATileOfRowsHasTheBitsOfFewRows) {
  constexpr int64_t kTileRows = 33;
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const Shape& shape : {Shape{136, 264}, Shape{16904, 72}}) {
        const Layer layer(shape, dtype, *target, shape.num_outs);
        const std::vector<std::byte> tile = plain(*target, layer, 0, kTileRows);
        std::vector<std::byte> few = plain(*target, layer, 0, 20);
        const std::vector<std::byte> rest = plain(*target, layer, 20, kTileRows - 20);
        few.insert(few.end(), rest.begin(), rest.end());
        EXPECT_EQ(std::memcmp(tile.data(), few.data(), tile.size()), 0)
            << *target << " " << dtype << ": " << shape.num_outs << " of " << shape.in_features;
      }
}

TEST_F(InvariantLinear, MatchesFloat64) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const Shape& shape : shapes_for(*target))
        for (const int64_t num_rows : {int64_t{3}, int64_t{40}, rows_for(*target)}) {
          const Layer layer(shape, dtype, *target, shape.num_outs);
          TestTensor out({num_rows, shape.num_outs}, DType::kF32);
          out.fill(NAN);
          target->linear({.x = layer.x.view().slice(0, 0, num_rows),
                          .weight = layer.weight,
                          .bias = layer.bias,
                          .out = out,
                          .batch_invariant = true});
          for (int64_t row = 0; row < num_rows; row += 1 + num_rows / 9)
            for (int64_t o = 0; o < shape.num_outs; o += 1 + shape.num_outs / 50) {
              double expected = layer.bias.at(o), magnitude = std::abs(expected);
              for (int64_t i = 0; i < shape.in_features; ++i) {
                const double term =
                    layer.x.at(row * shape.in_features + i) * layer.weight.at(o * shape.in_features + i);
                expected += term;
                magnitude += std::abs(term);
              }
              ASSERT_NEAR(out.at(row * shape.num_outs + o), expected, target->linear_tolerance() * magnitude)
                  << *target << " " << dtype << ": " << num_rows << " rows, output " << o << " of row "
                  << row;
            }
        }
}

}  // namespace
}  // namespace attend::kernels
