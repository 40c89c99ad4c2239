// 32-bit offsets of K and V rows (kernels/attention/cuda/common/paged_row_strides.h).
#include "attend/kernels/attention/cuda/common/plan/paged_row_strides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/base/error.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {
namespace {

// View [num_pages, page_size, 2, 128] of bf16; strides in elements.
TensorView pages_of(int64_t num_pages, int64_t page_size, int64_t page_stride, int64_t slot_stride) {
  TensorView pages;
  pages.dtype = DType::kBF16;
  pages.rank = 4;
  pages.shape = {num_pages, page_size, 2, 128};
  pages.strides = {page_stride, slot_stride, 128, 1};
  return pages;
}

void expect_places(const TensorView& pages) {
  const PagedRowStrides places = paged_row_strides("k", pages);
  for (const int64_t page : {int64_t{0}, pages.shape[0] / 2, pages.shape[0] - 1})
    for (const int64_t slot : {int64_t{0}, pages.shape[1] - 1}) {
      const int64_t units = page * places.page_units + slot * places.slot_units;
      EXPECT_LE(units, INT32_MAX);
      EXPECT_GT(units, INT32_MIN);
      EXPECT_EQ(units * places.unit_bytes, 2 * (page * pages.strides[0] + slot * pages.strides[1]))
          << pages << " page " << page << " slot " << slot;
    }
}

TEST(PagedRowStrides, MatchTheStrides) {
  expect_places(pages_of(100'000, 1, 256, 256));
  expect_places(pages_of(1000, 8, 8 * 256, 256));
  expect_places(pages_of(1000, 8, 2 * 8 * 256, 128));
  // A page stride that is not a multiple of the slot stride, and pages in reverse order.
  expect_places(pages_of(1000, 4, 4 * 256 + 8, 256));
  expect_places(pages_of(1000, 4, -4 * 256, 256));
  // A repeated page, overlapping slots, and an unused stride.
  expect_places(pages_of(1000, 4, 0, 256));
  expect_places(pages_of(1, 1, 3, 5));
}

TEST(PagedRowStrides, CoverTheRangeOf32BitsInTheLargestUnit) {
  // A unit of 512 bytes, a unit of 2^31 that is halved, and a unit of 16.
  expect_places(pages_of(int64_t{1} << 31, 1, 256, 256));
  expect_places(pages_of(int64_t{1} << 29, 1, int64_t{1} << 30, 256));
  expect_places(pages_of(16, 2, (int64_t{1} << 30) - 8, int64_t{1} << 24));
}

TEST(PagedRowStrides, RejectStridesBeyond32Bits) {
  const auto expect_error = [](const TensorView& pages) {
    try {
      paged_row_strides("k", pages);
      ADD_FAILURE() << pages << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::HasSubstr("prefill by rows"));
    }
  };
  expect_error(pages_of((int64_t{1} << 31) + 1, 1, 256, 256));
  expect_error(pages_of(17, 2, (int64_t{1} << 30) - 8, int64_t{1} << 24));
}

}  // namespace
}  // namespace attend::kernels::cuda
