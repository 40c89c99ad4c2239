// Common properties of elementwise operations: bits that do not depend on threads, and errors.
#include "attend/kernels/norm_rope/elementwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "attend/kernels/norm_rope/rope.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::HasSubstr;
using testing_support::Angles;
using testing_support::error_message;
using testing_support::NeedsTarget;
using testing_support::row_values;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using Elementwise = NeedsTarget;

TEST_F(Elementwise, ProducesTheSameBitsWhenThreadsShareTheRows) {
  constexpr int64_t kRows = 300, kDim = 256;
  const TestTensor x = TestTensor::random({kRows, kDim}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({kDim}, DType::kF32, 2);
  const Angles angles(kRows, 16);
  std::vector<int32_t> all;
  for (int32_t row = 0; row < kRows; ++row) all.push_back(row);
  TestTensor normalized({kRows, kDim}, DType::kF32), gated({kRows, kDim / 2}, DType::kF32);
  TestTensor gathered({kRows, kDim}, DType::kF32), rotated({kRows, 8, 32}, DType::kF32);
  for (int64_t i = 0; i < x.size(); ++i) rotated.set(i, static_cast<float>(x.at(i)));
  const Target& target = *targets().back();
  target.rms_norm(x, weight, 1e-6f, normalized, 0.0f);
  target.silu_mul(x, gated);
  target.gather_rows(x, all, gathered);
  target.rope(rotated, all, angles.cos, angles.sin);
  EXPECT_EQ(gathered.values(), x.values());
  for (int32_t row = 0; row < kRows; ++row) {
    const TensorView one = x.view().slice(0, row, row + 1);
    TestTensor one_normalized({1, kDim}, DType::kF32), one_gated({1, kDim / 2}, DType::kF32);
    TestTensor one_rotated({1, 8, 32}, DType::kF32);
    for (int64_t i = 0; i < kDim; ++i) one_rotated.set(i, static_cast<float>(x.at(row * kDim + i)));
    target.rms_norm(one, weight, 1e-6f, one_normalized, 0.0f);
    target.silu_mul(one, one_gated);
    target.rope(one_rotated, View<const int32_t>(all).subspan(static_cast<size_t>(row), 1), angles.cos,
                angles.sin);
    ASSERT_EQ(one_normalized.values(), row_values(normalized, row, kDim)) << row;
    ASSERT_EQ(one_gated.values(), row_values(gated, row, kDim / 2)) << row;
    ASSERT_EQ(one_rotated.values(), row_values(rotated, row, kDim)) << row;
  }
}

TEST_F(Elementwise, RejectsMismatchedArgumentsAndReportsWhy) {
  const TestTensor x({3, 8}, DType::kF32), half({3, 8}, DType::kF16), narrow({3, 6}, DType::kF32);
  const TestTensor weight({8}, DType::kBF16), short_weight({7}, DType::kBF16);
  Stream stream;
  const auto error_text = [](ErrorCode code, auto&& fn) { return error_message(code, fn); };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument, kUnsupported = ErrorCode::kUnsupported;
  EXPECT_THAT(error_text(kInvalid, [&] { rms_norm(x, short_weight, 1e-6f, x, stream); }),
              HasSubstr("weight bfloat16[7] on cpu: expected 8 in dimension 0"));
  EXPECT_THAT(error_text(kInvalid, [&] { rms_norm(x, weight, 1e-6f, narrow, stream); }),
              HasSubstr("out float32[3, 6] on cpu: expected 8 in dimension 1"));
  EXPECT_THAT(error_text(kInvalid, [&] { rms_norm(weight, weight, 1e-6f, x, stream); }),
              HasSubstr("expected 2 or 3 dimensions"));
  EXPECT_THAT(error_text(kUnsupported, [&] { rms_norm(half, weight, 1e-6f, x, stream); }),
              HasSubstr("x float16[3, 8] on cpu: activations are float32 on the CPU"));
  EXPECT_THAT(error_text(kInvalid, [&] { add_rms_norm(x, narrow, weight, 1e-6f, x, stream); }),
              HasSubstr("residual float32[3, 6] on cpu: expected 8 in dimension 1"));
  EXPECT_THAT(error_text(kInvalid, [&] { silu_mul(x, narrow, stream); }),
              HasSubstr("gate_up float32[3, 8] on cpu: expected 12 in dimension 1"));
  const std::vector<int32_t> rows = {0, 3, 1}, too_few = {0, 1};
  EXPECT_EQ(error_text(kInvalid, [&] { gather_rows(x, rows, x, stream); }), "rows[1] = 3: x has 3 rows");
  EXPECT_THAT(error_text(kInvalid, [&] { gather_rows(x, too_few, x, stream); }),
              HasSubstr("out float32[3, 8] on cpu: expected 2 in dimension 0"));
  Stream gpu{.device = {DeviceType::kCuda, 1}, .handle = nullptr};
  EXPECT_EQ(error_text(kInvalid, [&] { silu_mul(x, narrow, gpu); }),
            "out float32[3, 6] on cpu: expected on cuda:1");
}

}  // namespace
}  // namespace attend::kernels
