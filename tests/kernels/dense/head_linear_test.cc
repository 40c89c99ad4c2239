// Dense layers per head, compared with float64.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using HeadLinear = NeedsTarget;

double at(const TensorView& view, int64_t i, int64_t j, int64_t k) {
  double value = 0.0;
  visit_float_dtype(view.dtype, [&]<class T>(TypeTag<T>) {
    value = static_cast<double>(
        static_cast<float>(view.as<T>()[i * view.strides[0] + j * view.strides[1] + k * view.strides[2]]));
  });
  return value;
}

void expect_products(const Target& target, const TensorView& x, const TensorView& weight,
                     const TensorView& out, double worst_of_many = 1.0) {
  target.head_linear({.x = x, .weight = weight, .out = out});
  const double rounding = out.dtype == DType::kF32 ? 0.0 : out.dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  for (int64_t token = 0; token < x.shape[0]; ++token)
    for (int64_t head = 0; head < x.shape[1]; ++head)
      for (int64_t feature = 0; feature < out.shape[2]; ++feature) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t i = 0; i < x.shape[2]; ++i) {
          const double product = at(x, token, head, i) * at(weight, head, feature, i);
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(at(out, token, head, feature), sum,
                    worst_of_many * target.linear_tolerance() * magnitude + rounding * std::abs(sum))
            << "token " << token << ", head " << head << ", feature " << feature;
      }
}

// One matrix [heads x (nope + v), rank]. The first rows of a head are read transposed.
TEST_F(HeadLinear, MultipliesEachHeadByItsRowsOfOneMatrixAndByTheirTranspose) {
  struct Shape {
    int64_t heads, nope, v, rank;
  };
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const auto& [heads, nope, v, rank] :
           {Shape{2, 16, 24, 512}, Shape{3, 5, 7, 37}, Shape{1, 128, 128, 64}, Shape{2, 72, 136, 200}})
        for (const int64_t num_tokens : {1, 7, 65, 131}) {
          SCOPED_TRACE(testing::Message() << *target << ", " << to_string(dtype) << ", " << num_tokens
                                          << " tokens, rank " << rank);
          const DType activation = target->activation_for(dtype);
          const TestTensor kv_b = TestTensor::random({heads * (nope + v), rank}, dtype, 1);
          const TensorView of_heads = kv_b.view().split(0, nope + v);
          // Heads of q with another part after each.
          const TestTensor q = TestTensor::random({num_tokens, heads * (nope + 8)}, activation, 2);
          const TestTensor latents({num_tokens, heads, rank}, activation);
          expect_products(*target, q.view().split(1, nope + 8).slice(2, 0, nope),
                          of_heads.slice(1, 0, nope).transpose(1, 2), latents);
          const TestTensor values({num_tokens, heads, v}, activation);
          expect_products(*target, latents, of_heads.slice(1, nope, nope + v), values);
        }
}

// More inputs than all stages of a GPU tile, and more tiles than SMs.
TEST_F(HeadLinear, MultipliesManyInputsAndHeads) {
  const auto& target = targets().back();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const DType activation = target->activation_for(dtype);
    const TestTensor weight = TestTensor::random({3 * 40, 1096}, dtype, 1),
                     x = TestTensor::random({70, 3, 1096}, activation, 2), out({70, 3, 40}, activation);
    expect_products(*target, x.view(), weight.view().split(0, 40), out);
    const TestTensor many = TestTensor::random({70 * 40, 128}, dtype, 3),
                     q = TestTensor::random({129, 70, 40}, activation, 4),
                     latents({129, 70, 128}, activation);
    expect_products(*target, q.view(), many.view().split(0, 40).transpose(1, 2), latents,
                    /*worst_of_many=*/2.0);
  }
}

TEST_F(HeadLinear, IsBatchInvariant) {
  const auto& target = targets().back();
  const DType dtype = target->activation_for(DType::kBF16);
  constexpr int64_t kTokens = 300, kNope = 24;
  const auto multiply = [&](const TensorView& x, const TensorView& weight, const TensorView& out) {
    target->head_linear({.x = x, .weight = weight, .out = out, .batch_invariant = true});
  };
  const auto expect_rows = [](const TestTensor& some, const TestTensor& all, int64_t first) {
    for (int64_t i = 0; i < some.size(); ++i) ASSERT_EQ(some.at(i), all.at(first + i)) << i;
  };
  // Few and many heads use different tiles.
  for (const int64_t heads : {2, 70})
    for (const int64_t rank : {100, 136}) {
      const TestTensor kv_b = TestTensor::random({heads * kNope, rank}, DType::kBF16, 1),
                       x = TestTensor::random({kTokens, heads, kNope}, dtype, 2),
                       latents({kTokens, heads, rank}, dtype), values({kTokens, heads, kNope}, dtype);
      const TensorView weight = kv_b.view().split(0, kNope), transposed = weight.transpose(1, 2);
      multiply(x, transposed, latents);
      multiply(latents, weight, values);
      for (const int64_t count : {1, 16, 17, 65})
        for (const int64_t token : {0, 5, 63, 64, 235}) {
          SCOPED_TRACE(testing::Message()
                       << heads << " heads, rank " << rank << ", " << count << " tokens from " << token);
          const TestTensor some_latents({count, heads, rank}, dtype),
              some_values({count, heads, kNope}, dtype);
          multiply(x.view().slice(0, token, token + count), transposed, some_latents);
          multiply(latents.view().slice(0, token, token + count), weight, some_values);
          expect_rows(some_latents, latents, token * heads * rank);
          expect_rows(some_values, values, token * heads * kNope);
        }
    }
}

TEST(HeadLinearEntry, RejectsUnsupportedInput) {
  const TestTensor x({2, 3, 8}, DType::kF32), weight({3, 4, 8}, DType::kBF16), out({2, 3, 4}, DType::kF32),
      narrow({3, 4, 7}, DType::kBF16), bytes({3, 4, 8}, DType::kF8E4M3), wide({3, 8, 16}, DType::kF32);
  const auto error_text = [&](ErrorCode code, const TensorView& tensor) {
    Stream stream;
    return error_message(code, [&] { head_linear({.x = x, .weight = tensor, .out = out}, stream); });
  };
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument, narrow),
            "weight bfloat16[3, 4, 7] on cpu: expected 8 in dimension 2");
  EXPECT_EQ(error_text(ErrorCode::kUnsupported, bytes),
            "weight fp8_e4m3[3, 4, 8] on cpu: expected float32, float16 or bfloat16");
  TensorView gaps = wide;
  gaps.shape = {3, 4, 8};
  gaps.strides = {128, 32, 2};
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument, gaps),
            "weight float32[3, 4, 8] on cpu with strides 32 and 2: expected one of them to be 1");
}

}  // namespace
}  // namespace attend::kernels
