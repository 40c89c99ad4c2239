// K/V lookup of the reference: the documentation's page table, CSR and sliding-window translation, and groups
// of heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/reference/tiny_attention.h"

namespace attend::conformance {
namespace {

using kernels::KvIndexKind;
using ::testing::Each;
using ::testing::FloatEq;

// Nine keys of equal scores in pages of four. As in the documentation's example, the row of token slots is
// [8, 9, 10, 11, 20, 21, 22, 23, 36] and the page table [2, 5, 9]. Values are positions, so that the mean of
// all keys is 4. Other slots are poisoned.
class NineKeys {
 public:
  explicit NineKeys(std::vector<int32_t> pages) : k_(12 * kPageSize * kHeadDim, NAN), v_(k_.size(), NAN) {
    for (size_t position = 0; position < 9; ++position) {
      const auto page = static_cast<size_t>(pages[position / kPageSize]);
      const size_t slot = page * kPageSize + position % kPageSize;
      std::fill_n(k_.begin() + static_cast<std::ptrdiff_t>(slot * kHeadDim), kHeadDim, 0.0f);
      std::fill_n(v_.begin() + static_cast<std::ptrdiff_t>(slot * kHeadDim), kHeadDim,
                  static_cast<float>(position));
    }
  }

  std::vector<float> attend(kernels::KvIndex index) {
    index.page_size = kPageSize;
    std::vector<float> q(kHeadDim, 1.0f), out(kHeadDim);
    const std::vector<int32_t> cu_seqlen_q = {0, 1}, seqlen_kv = {9};
    kernels::AttentionArgs args;
    args.q = TensorView::contiguous(q.data(), DType::kF32, {1, 1, kHeadDim});
    args.out = TensorView::contiguous(out.data(), DType::kF32, {1, 1, kHeadDim});
    args.kv.k = TensorView::contiguous(k_.data(), DType::kF32, {12, kPageSize, 1, kHeadDim});
    args.kv.v = TensorView::contiguous(v_.data(), DType::kF32, {12, kPageSize, 1, kHeadDim});
    args.kv.index = index;
    args.batch.cu_seqlen_q = cu_seqlen_q;
    args.batch.seqlen_kv = seqlen_kv;
    args.batch.max_seqlen_q = 1;
    kernels::reference::attention(args);
    return out;
  }

 private:
  static constexpr size_t kPageSize = 4, kHeadDim = 8;
  std::vector<float> k_, v_;
};

const std::vector<int32_t> kRow = {8, 9, 10, 11, 20, 21, 22, 23, 36};

TEST(ReferenceIndex, ReadsRequestRows) {
  const std::vector<int32_t> rows = {0};
  const kernels::KvIndex index{.kind = KvIndexKind::kRequestRows, .table = kRow.data(), .rows = rows.data()};
  EXPECT_THAT(NineKeys({2, 5, 9}).attend(index), Each(FloatEq(4.0f)));
}

TEST(ReferenceIndex, ReadsThePageTable) {
  const std::vector<int32_t> table = {2, 5, 9};
  const kernels::KvIndex index{.kind = KvIndexKind::kPageTable, .table = table.data(), .table_stride = 3};
  EXPECT_THAT(NineKeys({2, 5, 9}).attend(index), Each(FloatEq(4.0f)));
}

TEST(ReferenceIndex, ReadsCsr) {
  const std::vector<int32_t> indices = {777, 777, 2, 5, 9}, indptr = {2, 5};
  const kernels::KvIndex index{.kind = KvIndexKind::kCsr, .table = indices.data(), .indptr = indptr.data()};
  EXPECT_THAT(NineKeys({2, 5, 9}).attend(index), Each(FloatEq(4.0f)));
}

// full_to_swa[8] = 28, [20] = 4, and here [36] = 40: SWA pages 7, 1, 10.
TEST(ReferenceIndex, TranslatesSlotsBeforeDividingByThePageSize) {
  std::vector<int32_t> slot_map(48, -1);
  slot_map[8] = 28;
  slot_map[20] = 4;
  slot_map[36] = 40;
  const std::vector<int32_t> rows = {0};
  const kernels::KvIndex index{.kind = KvIndexKind::kRequestRows,
                               .table = kRow.data(),
                               .rows = rows.data(),
                               .slot_map = slot_map.data()};
  EXPECT_THAT(NineKeys({7, 1, 10}).attend(index), Each(FloatEq(4.0f)));
}

TEST(ReferenceIndex, QueryHeadsOfAGroupShareAKvHead) {
  // Four query heads over two KV heads with one key each, of values 10 and 20.
  std::vector<float> q(4 * 8, 1.0f), k(2 * 8, 0.0f), v(2 * 8, 10.0f), out(4 * 8);
  std::fill(v.begin() + 8, v.end(), 20.0f);
  const std::vector<int32_t> cu_seqlen = {0, 1}, seqlen_kv = {1};
  kernels::AttentionArgs args;
  args.q = TensorView::contiguous(q.data(), DType::kF32, {1, 4, 8});
  args.out = TensorView::contiguous(out.data(), DType::kF32, {1, 4, 8});
  args.kv.k = TensorView::contiguous(k.data(), DType::kF32, {1, 1, 2, 8});
  args.kv.v = TensorView::contiguous(v.data(), DType::kF32, {1, 1, 2, 8});
  args.kv.index = {.kind = KvIndexKind::kContiguous, .indptr = cu_seqlen.data()};
  args.batch.cu_seqlen_q = cu_seqlen;
  args.batch.seqlen_kv = seqlen_kv;
  args.batch.max_seqlen_q = 1;
  kernels::reference::attention(args);
  EXPECT_EQ(out[0 * 8], 10.0f);
  EXPECT_EQ(out[1 * 8], 10.0f);
  EXPECT_EQ(out[2 * 8], 20.0f);
  EXPECT_EQ(out[3 * 8], 20.0f);
}

}  // namespace
}  // namespace attend::conformance
