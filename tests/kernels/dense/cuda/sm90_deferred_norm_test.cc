// Deferred norm between two GEMMs of sm_90: the first GEMM stores its result times the norm's weight, and
// partial sums of squares; the second scales its accumulators.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/dense/cuda/sm90_test.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels::cuda {
namespace {

using attend::cuda::OwnedStream;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

class Sm90DeferredNorm : public testing_cuda::Sm90Test {};

struct Widths {
  int64_t in_features, width, num_outs;  // `width` features are normalized
};

std::ostream& operator<<(std::ostream& out, const Widths& widths) {
  return out << widths.in_features << " to " << widths.width << " to " << widths.num_outs;
}

// One tile and several, clusters of 1 to 8, more tiles than clusters, and slots that 32 lanes process in one
// iteration, in several, and with a remainder.
constexpr Widths kWidths[] = {{64, 64, 64}, {200, 320, 96}, {2048, 1024, 4128}, {136, 4160, 256}};
constexpr float kEps = 1e-5f;

// residual += x first^T; out = norm(residual) second^T, or silu(gate) * up of its halves.
struct Chain {
  static constexpr int64_t kMaxRows = 300;

  OwnedStream stream{kGpu};
  Widths widths;
  bool gated;
  TestTensor x, first, second, bias, weight, before, residual, normalized, squares, out;
  DeviceCopy device_x, device_first, device_second, device_bias, device_weight;
  DeviceCopy device_residual, device_normalized, device_squares, device_out;

  Chain(const Widths& shape_widths, bool is_gated)
      : widths(shape_widths),
        gated(is_gated),
        x(TestTensor::random({kMaxRows, widths.in_features}, DType::kBF16, 1)),
        first(repeating({widths.width, widths.in_features})),
        second(repeating({widths.num_outs, widths.width})),
        bias(TestTensor::random({widths.num_outs}, DType::kBF16, 2)),
        weight(TestTensor::random({widths.width}, DType::kBF16, 3)),
        before(TestTensor::random({kMaxRows, widths.width}, DType::kBF16, 4, 3.0f)),
        residual({kMaxRows, widths.width}, DType::kBF16),
        normalized(nans({kMaxRows, widths.width}, DType::kBF16)),
        squares(nans({kMaxRows, widths.width / kPartialSquaresWidth}, DType::kF32)),
        out(nans({kMaxRows, widths.num_outs / (gated ? 2 : 1)}, DType::kF32)),
        device_x(x, stream.get()),
        device_first(first, stream.get()),
        device_second(second, stream.get()),
        device_bias(bias, stream.get()),
        device_weight(weight, stream.get()),
        device_residual(before, stream.get()),
        device_normalized(normalized, stream.get()),
        device_squares(squares, stream.get()),
        device_out(out, stream.get()) {}

  // Weights repeat with a prime period, which is fast to generate.
  static TestTensor repeating(std::initializer_list<int64_t> shape) {
    TestTensor made(shape, DType::kBF16);
    for (int64_t i = 0; i < made.size(); ++i)
      made.set(i, 0.05f * static_cast<float>(i * 2654435761 % 10007 - 5003) / 5003.0f);
    return made;
  }
  static TestTensor nans(std::initializer_list<int64_t> shape, DType dtype) {
    TestTensor made(shape, dtype);
    made.fill(NAN);
    return made;
  }

  // Queues both GEMMs for the first rows. The residual grows with each call.
  void queue(int64_t num_rows) {
    const auto rows = [&](const DeviceCopy& copy) { return copy.view().slice(0, 0, num_rows); };
    InputNorm norm{.weight = device_weight.view(),
                   .eps = kEps,
                   .normalized = rows(device_normalized),
                   .partial_squares = rows(device_squares)};
    norm.deferred = sm90::swap_ab_gemm({.x = rows(device_x),
                                        .weight = device_first.view(),
                                        .bias = {},
                                        .out = rows(device_residual),
                                        .accumulate = true,
                                        .next_norm = &norm},
                                       /*gated=*/false, stream.get());
    ASSERT_TRUE(norm.deferred);
    sm90::swap_ab_gemm({.x = rows(device_residual),
                        .weight = device_second.view(),
                        .bias = device_bias.view(),
                        .out = rows(device_out),
                        .norm = norm},
                       gated, stream.get());
  }
  void run(int64_t num_rows) {
    attend::cuda::copy(before, device_residual.view(), stream.get());
    queue(num_rows);
    download();
  }
  void download() {
    attend::cuda::copy(device_residual.view(), residual, stream.get());
    for (const DeviceCopy* copy : {&device_normalized, &device_squares, &device_out})
      copy->download(stream.get());
    attend::cuda::synchronize(stream.get());
  }

  // Row `row` of the normalized residual times row `i` of `second`, in float64 over the stored bf16 values,
  // and the sum of the magnitudes of its terms.
  struct Sum {
    double value = 0.0, magnitude = 0.0;
  };
  Sum product(int64_t row, int64_t i) const {
    double squared = 0.0;
    for (int64_t j = 0; j < widths.width; ++j)
      squared += residual.at(row * widths.width + j) * residual.at(row * widths.width + j);
    const double scale =
        1.0 / std::sqrt(squared / static_cast<double>(widths.width) + static_cast<double>(kEps));
    Sum sum;
    for (int64_t j = 0; j < widths.width; ++j) {
      const double term = scale * normalized.at(row * widths.width + j) * second.at(i * widths.width + j);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }
};

// Truncation by tensor cores when they align addends, and rounding of the squares, relative to the sum of
// magnitudes.
constexpr double kTolerance = 4e-6;

TEST_F(Sm90DeferredNorm, StoresResidualTimesWeightAndPartialSquares) {
  for (const Widths& widths : kWidths) {
    Chain chain(widths, /*gated=*/false);
    for (const int64_t num_rows : {1, 17, 32, 40, 64, 100, 128, 200}) {
      SCOPED_TRACE(testing::Message() << num_rows << " rows, " << widths);
      chain.run(num_rows);
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t slot = 0; slot < widths.width / kPartialSquaresWidth; ++slot) {
          double squares = 0.0;
          for (int64_t j = 0; j < kPartialSquaresWidth; ++j) {
            const int64_t i = slot * kPartialSquaresWidth + j;
            const double value = chain.residual.at(row * widths.width + i);
            squares += value * value;
            TestTensor product({1}, DType::kBF16);
            product.set(0, static_cast<float>(value * chain.weight.at(i)));
            ASSERT_EQ(chain.normalized.at(row * widths.width + i), product.at(0))
                << "row " << row << ", " << i;
          }
          ASSERT_NEAR(chain.squares.at(row * (widths.width / kPartialSquaresWidth) + slot), squares,
                      1e-6 * squares)
              << "row " << row << ", slot " << slot;
        }
    }
  }
}

// Compares some outputs of some rows with float64.
void check_outputs(const Chain& chain, int64_t num_rows) {
  const int64_t num_outs = chain.widths.num_outs / (chain.gated ? 2 : 1);
  const int64_t row_step = 1 + num_rows / 12, out_step = 1 + num_outs / 60;
  for (int64_t row = 0; row < num_rows; row += row_step)
    for (int64_t i = row % out_step; i < num_outs; i += out_step) {
      const Chain::Sum sum = chain.product(row, i);
      const double value = sum.value + chain.bias.at(i), got = chain.out.at(row * num_outs + i);
      const double tolerance = kTolerance * (sum.magnitude + std::abs(chain.bias.at(i)));
      if (!chain.gated) {
        ASSERT_NEAR(got, value, tolerance) << "row " << row << ", output " << i;
        continue;
      }
      const Chain::Sum ups = chain.product(row, num_outs + i);
      const double up = ups.value + chain.bias.at(num_outs + i);
      ASSERT_NEAR(got, value / (1.0 + std::exp(-value)) * up,
                  1e-6 + 2.0 * (tolerance * (1.0 + std::abs(up)) +
                                kTolerance * (ups.magnitude + 1.0) * (1.0 + std::abs(value))))
          << "row " << row << ", output " << i;
    }
}

TEST_F(Sm90DeferredNorm, ScalesSumsOfADeferredNorm) {
  for (const bool gated : {false, true})
    for (const Widths& widths : kWidths) {
      Chain chain(widths, gated);
      for (const int64_t num_rows : {1, 17, 32, 40, 64, 100, 128, 200}) {
        SCOPED_TRACE(testing::Message() << num_rows << " rows, " << widths << (gated ? ", gated" : ""));
        chain.run(num_rows);
        check_outputs(chain, num_rows);
        if (HasFatalFailure()) return;
      }
    }
}

std::vector<std::byte> bytes_of(const TestTensor& tensor, int64_t num_rows) {
  const TensorView rows = tensor.view().slice(0, 0, num_rows);
  const auto* const first = static_cast<const std::byte*>(rows.data);
  return {first, first + rows.num_bytes()};
}

TEST_F(Sm90DeferredNorm, BitsOfARowDoNotDependOnTheNumberOfRows) {
  for (const bool gated : {false, true})
    for (const Widths& widths : kWidths) {
      SCOPED_TRACE(testing::Message() << widths << (gated ? ", gated" : ""));
      Chain all(widths, gated), some(widths, gated);
      all.run(Chain::kMaxRows);
      for (const int64_t num_rows : {1, 16, 31, 32, 33, 64, 65, 128, 129, 257}) {
        some.run(num_rows);
        ASSERT_EQ(bytes_of(some.out, num_rows), bytes_of(all.out, num_rows)) << num_rows << " rows";
        ASSERT_EQ(bytes_of(some.squares, num_rows), bytes_of(all.squares, num_rows)) << num_rows << " rows";
      }
    }
}

// Each GEMM of a graph starts before the previous one has finished. The residual grows from pair to pair.
TEST_F(Sm90DeferredNorm, GraphMatchesEagerBits) {
  Chain chain({2048, 1024, 4128}, /*gated=*/true);
  for (const int64_t num_rows : {32, 64, 128}) {
    SCOPED_TRACE(testing::Message() << num_rows << " rows");
    constexpr int kPairs = 10, kLaunches = 10;
    chain.run(num_rows);
    for (int i = 1; i < kPairs * kLaunches; ++i) {
      chain.queue(num_rows);
      attend::cuda::synchronize(chain.stream.get());
    }
    chain.download();
    const std::vector<std::byte> residual = bytes_of(chain.residual, num_rows),
                                 out = bytes_of(chain.out, num_rows);
    attend::cuda::Graph graph(chain.stream.get(), [&] {
      for (int i = 0; i < kPairs; ++i) chain.queue(num_rows);
    });
    attend::cuda::copy(chain.before, chain.device_residual.view(), chain.stream.get());
    for (int i = 0; i < kLaunches; ++i) graph.launch(chain.stream.get());
    chain.download();
    EXPECT_EQ(bytes_of(chain.residual, num_rows), residual);
    EXPECT_EQ(bytes_of(chain.out, num_rows), out);
  }
}

// The range of f16 is too small, and without partial squares there is no memory for them.
TEST_F(Sm90DeferredNorm, IsNotDeferredIfUnsupported) {
  OwnedStream stream(kGpu);
  constexpr int64_t kNumRows = 32, kWidth = 128;
  const auto deferred = [&](DType dtype, DType norm_dtype, bool with_squares) {
    const auto made = [&](int64_t rows, DType type) {
      return attend::cuda::zeros({rows, kWidth}, type, kGpu);
    };
    const Tensor x = made(kNumRows, dtype), weight = made(kWidth, dtype), out = made(kNumRows, dtype),
                 normalized = made(kNumRows, dtype), norm_weight = made(1, norm_dtype),
                 squares = attend::cuda::zeros({kNumRows, kWidth / kPartialSquaresWidth}, DType::kF32, kGpu);
    InputNorm norm{.weight = norm_weight.view().reshape({kWidth}), .eps = kEps, .normalized = normalized};
    if (with_squares) norm.partial_squares = squares;
    const bool is_deferred =
        sm90::swap_ab_gemm({.x = x, .weight = weight, .bias = {}, .out = out, .next_norm = &norm},
                           /*gated=*/false, stream.get());
    attend::cuda::synchronize(stream.get());
    return is_deferred;
  };
  EXPECT_TRUE(deferred(DType::kBF16, DType::kBF16, /*with_squares=*/true));
  EXPECT_FALSE(deferred(DType::kF16, DType::kF16, /*with_squares=*/true));
  EXPECT_FALSE(deferred(DType::kBF16, DType::kF32, /*with_squares=*/true));
  EXPECT_FALSE(deferred(DType::kBF16, DType::kBF16, /*with_squares=*/false));
}

// Through the public entry: other kernels normalize themselves, and for more rows partial squares are slower.
TEST_F(Sm90DeferredNorm, IsDeferredForSwapAbWithFewRows) {
  OwnedStream stream(kGpu);
  constexpr int64_t kWidth = 4096, kInFeatures = 2056;
  const Tensor weight = attend::cuda::zeros({kWidth, kInFeatures}, DType::kBF16, kGpu),
               norm_weight = attend::cuda::zeros({kWidth}, DType::kBF16, kGpu);
  const GpuFacts& gpu = gpu_facts(kGpu);
  std::set<bool> seen;
  for (int64_t num_rows = 1; num_rows <= 40; ++num_rows) {
    const auto made = [&](int64_t columns, DType dtype) {
      return attend::cuda::zeros({num_rows, columns}, dtype, kGpu);
    };
    const Tensor x = made(kInFeatures, DType::kBF16), out = made(kWidth, DType::kBF16),
                 normalized = made(kWidth, DType::kBF16),
                 squares = made(kWidth / kPartialSquaresWidth, DType::kF32);
    InputNorm norm{.weight = norm_weight, .eps = kEps, .normalized = normalized, .partial_squares = squares};
    const LinearArgs args{.x = x, .weight = weight, .bias = {}, .out = out, .next_norm = &norm};
    const bool deferred = kernels::linear(args, stream.get());
    attend::cuda::synchronize(stream.get());
    const GemmKernel kernel = choose(gemm_problem(args, /*gated=*/false), gpu).kernel;
    EXPECT_EQ(deferred,
              kernel == GemmKernel::kSwapAbSplitK && num_rows <= gemm_tuning(gpu).deferred_norm_max_rows)
        << num_rows << " rows";
    seen.insert(deferred);
  }
  EXPECT_EQ(seen.size(), 2u);
}

// Two sums, of which the first defers the expected norm. Its partial squares are invalid after the second
// sum.
TEST_F(Sm90DeferredNorm, IsNotDeferredAcrossAnotherSum) {
  OwnedStream stream(kGpu);
  constexpr int64_t kNumRows = 25, kWidth = 4096, kInFeatures = 2056;
  constexpr int64_t kOuts = 4096;  // for a smaller layer, a kernel that normalizes itself is chosen
  const auto random = [&](std::initializer_list<int64_t> shape, uint64_t first, float mean, float deviation) {
    const Tensor made = Tensor::empty(shape, DType::kBF16, kGpu);
    fill_random(made, {.first = first, .mean = mean, .deviation = deviation}, stream.get());
    return made;
  };
  const Tensor x = random({kNumRows, kInFeatures}, 0, 0.0f, 1.0f),
               weight = random({kWidth, kInFeatures}, 1 << 20, 0.0f, 0.05f),
               norm_weight = random({kWidth}, 1 << 25, 1.0f, 0.1f),
               head = random({kOuts, kWidth}, 1 << 26, 0.0f, 0.02f);
  const Norm norm{.weight = norm_weight, .eps = kEps};
  const OpContext context{.stream = stream.get()};
  const auto head_after_two_sums = [&](bool expects) {
    const Tensor sum = random({kNumRows, kWidth}, 1 << 27, 0.0f, 1.0f),
                 scratch = Tensor::zeros({kNumRows, kWidth}, DType::kBF16, kGpu),
                 gathered = Tensor::zeros({kNumRows, kWidth}, DType::kBF16, kGpu),
                 squares = Tensor::zeros({kNumRows, kWidth / kPartialSquaresWidth}, DType::kF32, kGpu),
                 out = Tensor::zeros({kNumRows, kOuts}, DType::kBF16, kGpu);
    Residual residual({.sum = sum, .scratch = scratch, .gathered = gathered, .partial_squares = squares});
    if (expects) residual.expect(norm);
    linear_add(x, {.weight = weight}, residual, context);
    linear_add(x, {.weight = weight}, residual, context);
    const Linear linear{.weight = head};
    norm_linear(residual, {.norm = norm, .linear = {&linear, 1}, .out = out}, context);
    const Tensor host = Tensor::empty({kNumRows, kOuts}, DType::kBF16);
    attend::cuda::copy(out, host, stream.get());
    attend::cuda::synchronize(stream.get());
    std::vector<float> values;
    for (const BF16 value : host.span<BF16>()) values.push_back(static_cast<float>(value));
    return values;
  };
  EXPECT_EQ(head_after_two_sums(/*expects=*/true), head_after_two_sums(/*expects=*/false));
}

TEST_F(Sm90DeferredNorm, RejectsAnUndeferredNorm) {
  Chain chain(kWidths[0], /*gated=*/false);
  EXPECT_NE(testing_support::error_message(ErrorCode::kInternal,
                                           [&] {
                                             sm90::swap_ab_gemm(
                                                 {.x = chain.device_residual.view(),
                                                  .weight = chain.device_second.view(),
                                                  .bias = {},
                                                  .out = chain.device_out.view(),
                                                  .norm = {.weight = chain.device_weight.view(),
                                                           .eps = kEps,
                                                           .normalized = chain.device_normalized.view()}},
                                                 /*gated=*/false, chain.stream.get());
                                           })
                .find("the norm was not deferred"),
            std::string::npos);
}

}  // namespace
}  // namespace attend::kernels::cuda
