#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "attend/tensor/tensor.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::error_message;

// Tensor [2, 3, 4] with elements 0 to 23 in row-major order.
class TensorViewTest : public testing::Test {
 protected:
  TensorViewTest() { std::iota(values_.begin(), values_.end(), 0); }

  std::vector<int32_t> values_ = std::vector<int32_t>(24);
  TensorView view_ = TensorView::contiguous(values_.data(), DType::kI32, {2, 3, 4});
};

int32_t at(const TensorView& view, std::initializer_list<int64_t> index) {
  TensorView sub = view;
  for (int64_t i : index) sub = sub[i];
  return *sub.as<int32_t>();
}

TEST_F(TensorViewTest, IsRowMajorWhenContiguous) {
  EXPECT_EQ(view_.rank, 3);
  EXPECT_THAT(std::vector<int64_t>(view_.strides.begin(), view_.strides.begin() + 3), ElementsAre(12, 4, 1));
  EXPECT_TRUE(view_.is_contiguous());
  EXPECT_EQ(view_.num_elements(), 24);
  EXPECT_EQ(view_.num_bytes(), 96u);
  EXPECT_EQ(at(view_, {1, 2, 3}), 23);
  EXPECT_EQ(at(view_, {1, 0, 2}), 14);
}

TEST_F(TensorViewTest, IndexingKeepsTheStridesOfTheOtherDimensions) {
  const TensorView sub = view_[1];
  EXPECT_EQ(sub.rank, 2);
  EXPECT_EQ(sub.shape[0], 3);
  EXPECT_EQ(sub.strides[0], 4);
  EXPECT_EQ(sub.as<int32_t>(), values_.data() + 12);
}

TEST_F(TensorViewTest, OnlySlicesOfTheFirstDimensionAreContiguous) {
  EXPECT_TRUE(view_.slice(0, 1, 2).is_contiguous());
  const TensorView middle = view_.slice(2, 1, 3);
  EXPECT_FALSE(middle.is_contiguous());
  EXPECT_EQ(middle.num_elements(), 12);
  EXPECT_EQ(at(middle, {1, 2, 0}), 21);
  EXPECT_EQ(at(middle, {1, 2, 1}), 22);
}

TEST_F(TensorViewTest, AnEmptySliceIsContiguous) {
  const TensorView none = view_.slice(2, 4, 4);
  EXPECT_EQ(none.num_elements(), 0);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_EQ(none.span<int32_t>().size(), 0u);
}

TEST_F(TensorViewTest, SplittingKeepsEveryElementOnce) {
  const TensorView split = view_.split(2, 2);
  EXPECT_EQ(split.to_string(), "int32[2, 3, 2, 2] on cpu");
  EXPECT_TRUE(split.is_contiguous());
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(at(split, {i, j, k / 2, k % 2}), at(view_, {i, j, k}));
}

TEST_F(TensorViewTest, SplittingTheFirstDimensionShiftsTheOthers) {
  const TensorView rows = TensorView::contiguous(values_.data(), DType::kI32, {6, 4});
  const TensorView split = rows.split(0, 3);
  EXPECT_EQ(split.to_string(), "int32[2, 3, 4] on cpu");
  EXPECT_EQ(split.strides, view_.strides);
}

TEST_F(TensorViewTest, SplittingWorksForAnyStride) {
  const TensorView columns = TensorView::contiguous(values_.data(), DType::kI32, {4, 6}).transpose(0, 1);
  const TensorView split = columns.split(0, 2);
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(at(split, {i / 2, i % 2, j}), j * 6 + i);
}

TEST_F(TensorViewTest, TransposingExchangesStridesOnly) {
  const TensorView heads_first = view_.transpose(0, 1);
  EXPECT_EQ(heads_first.to_string(), "int32[3, 2, 4] on cpu");
  EXPECT_EQ(heads_first.data, view_.data);
  EXPECT_FALSE(heads_first.is_contiguous());
  EXPECT_EQ(at(heads_first, {2, 1, 3}), at(view_, {1, 2, 3}));
  EXPECT_TRUE(heads_first.transpose(1, 0).is_contiguous());
}

TEST_F(TensorViewTest, AStrideOfZeroRepeatsARow) {
  TensorView repeated = view_[0];
  repeated.strides[0] = 0;
  EXPECT_EQ(at(repeated, {0, 3}), 3);
  EXPECT_EQ(at(repeated, {2, 3}), 3);
  EXPECT_FALSE(repeated.is_contiguous());
}

TEST_F(TensorViewTest, ExtentsOfOneMayHaveAnyStride) {
  TensorView row = view_.slice(1, 2, 3)[1];
  EXPECT_EQ(row.shape[0], 1);
  row.strides[0] = 1000;
  EXPECT_TRUE(row.is_contiguous());
  EXPECT_THAT(row.span<int32_t>(), ElementsAre(20, 21, 22, 23));
}

TEST_F(TensorViewTest, ReshapingKeepsTheOrderOfTheElements) {
  const TensorView flat = view_.reshape({4, 6});
  EXPECT_EQ(at(flat, {3, 5}), 23);
  EXPECT_EQ(at(flat, {1, 1}), 7);
  EXPECT_EQ(view_.reshape({24}).span<int32_t>().size(), 24u);
}

TEST_F(TensorViewTest, RejectsInvalidIndicesSlicesAndShapes) {
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { view_[2]; }), "index 2 of int32[2, 3, 4] on cpu");
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { view_[-1]; }), "index -1 of int32[2, 3, 4] on cpu");
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { view_.slice(1, 2, 4); }),
            "slice 2:4 of dimension 1 of int32[2, 3, 4] on cpu");
  EXPECT_THROW(view_.slice(3, 0, 1), Error);
  EXPECT_THROW(view_.slice(1, 2, 1), Error);
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { view_.split(2, 3); }),
            "split of dimension 2 of int32[2, 3, 4] on cpu by 3");
  EXPECT_THROW(view_.split(2, 0), Error);
  EXPECT_THROW(view_.transpose(0, 3), Error);
  EXPECT_THROW(view_.reshape({5, 5}), Error);
  EXPECT_THROW(view_.transpose(0, 1).reshape({24}), Error);
  EXPECT_THROW(view_.transpose(0, 1).span<int32_t>(), Error);
  const TensorView full = TensorView::contiguous(values_.data(), DType::kI32, {1, 2, 3, 4, 1});
  EXPECT_THROW(full.split(3, 2), Error);
}

TEST_F(TensorViewTest, RejectsAccessAsAnotherType) {
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { view_.as<float>(); }),
            "tensor of int32 read as float32");
  EXPECT_EQ(view_.as<const int32_t>(), values_.data());
}

TEST(TensorView, RejectsUnsupportedRanksExtentsAndSizes) {
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [] {
                            TensorView::contiguous(nullptr, DType::kF32, {1, 1, 1, 1, 1, 1});
                          }),
            "tensor rank 6: at most 5");
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [] {
                              TensorView::contiguous(nullptr, DType::kF32, {4, -1});
                            }),
              HasSubstr("negative extent"));
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument,
                    [] {
                      TensorView::contiguous(nullptr, DType::kF32, {int64_t{1} << 31, int64_t{1} << 30});
                    }),
      HasSubstr("more bytes than an int64 counts"));
  EXPECT_EQ(TensorView::contiguous(nullptr, DType::kU8, {int64_t{1} << 31, int64_t{1} << 31}).num_bytes(),
            size_t{1} << 62);
}

TEST(TensorView, IsEmptyWithoutData) {
  EXPECT_TRUE(TensorView{}.empty());
  float value = 0;
  EXPECT_FALSE(TensorView::contiguous(&value, DType::kF32, {1}).empty());
}

TEST(TensorView, OffsetsBeyondTwoGigaelementsAreExact) {
  // Computes addresses only; no memory is read.
  std::byte base{};
  const TensorView pool = TensorView::contiguous(&base, DType::kBF16, {1 << 20, 16, 8, 128});
  const auto* address = static_cast<std::byte*>(pool[(1 << 20) - 1].data);
  EXPECT_EQ(address - &base, int64_t{(1 << 20) - 1} * 16 * 8 * 128 * 2);
}

}  // namespace
}  // namespace attend
