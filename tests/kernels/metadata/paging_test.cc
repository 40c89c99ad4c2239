// Page tables, CSR and slot translation: examples of the documentation, edge cases and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attend/kernels/metadata/metadata.h"
#include "tests/support/count_allocations.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using ::testing::ElementsAre;
using testing_support::error_message;

constexpr int32_t kPoison = 0x7fffff00;

// A table of three rows of nine positions; row 1 is the request of the documentation.
const std::vector<int32_t> kTable{
    kPoison, kPoison, kPoison, kPoison, kPoison, kPoison, kPoison, kPoison, kPoison,  //
    8,       9,       10,      11,      20,      21,      22,      23,      36,       //
    40,      41,      42,      43,      12,      kPoison, kPoison, kPoison, kPoison,  //
};

RequestRows make_requests(const std::vector<int32_t>& rows, const std::vector<int32_t>& seqlen_kv,
                          const int32_t* slot_map = nullptr) {
  return {.table = kTable.data(), .stride = 9, .rows = rows, .seqlen_kv = seqlen_kv, .slot_map = slot_map};
}

TEST(BuildPageTable, DividesTheFirstSlotOfEachPage) {
  const std::vector<int32_t> rows{1}, seqlen_kv{9};
  std::vector<int32_t> page_table(3);
  build_page_table(make_requests(rows, seqlen_kv), 4, 3, page_table);
  EXPECT_THAT(page_table, ElementsAre(2, 5, 9));
}

TEST(BuildPageTable, HasOnePagePerTokenAtPageSizeOne) {
  const std::vector<int32_t> rows{1}, seqlen_kv{5};
  std::vector<int32_t> page_table(5);
  build_page_table(make_requests(rows, seqlen_kv), 1, 5, page_table);
  EXPECT_THAT(page_table, ElementsAre(8, 9, 10, 11, 20));
}

TEST(BuildPageTable, DoesNotWritePastTheRow) {
  const std::vector<int32_t> rows{1, 2, 1}, seqlen_kv{9, 5, 0};
  std::vector<int32_t> page_table(12, -1);
  build_page_table(make_requests(rows, seqlen_kv), 4, 4, page_table);
  EXPECT_THAT(page_table, ElementsAre(2, 5, 9, -1, 10, 3, -1, -1, -1, -1, -1, -1));
}

// FlashMLA's example: lengths 130 and 64 with pages of 64.
TEST(BuildPageTable, FullLastPageAddsNoEntry) {
  std::vector<int32_t> table(2 * 130);
  std::iota(table.begin(), table.begin() + 130, 64);
  std::iota(table.begin() + 130, table.end(), 640);
  const std::vector<int32_t> rows{0, 1}, seqlen_kv{130, 64};
  std::vector<int32_t> page_table(6, -1);
  build_page_table({.table = table.data(), .stride = 130, .rows = rows, .seqlen_kv = seqlen_kv}, 64, 3,
                   page_table);
  EXPECT_THAT(page_table, ElementsAre(1, 2, 3, 10, -1, -1));
}

// Full pages 2 and 5 are stored in pages 7 and 1 of the sliding-window half.
class SwaTranslation : public testing::Test {
 protected:
  SwaTranslation() {
    for (int32_t offset = 0; offset < 4; ++offset) {
      slot_map_[static_cast<size_t>(8 + offset)] = 28 + offset;
      slot_map_[static_cast<size_t>(20 + offset)] = 4 + offset;
    }
  }
  std::vector<int32_t> slot_map_ = std::vector<int32_t>(48);
};

TEST_F(SwaTranslation, IsAppliedToSlotsBeforeTheDivision) {
  const std::vector<int32_t> rows{1}, seqlen_kv{8};
  std::vector<int32_t> page_table(2), wrong(2), indptr(2), indices(2);
  build_page_table(make_requests(rows, seqlen_kv, slot_map_.data()), 4, 2, page_table);
  EXPECT_THAT(page_table, ElementsAre(7, 1));
  build_csr(make_requests(rows, seqlen_kv, slot_map_.data()), 4, indptr, indices);
  EXPECT_THAT(indices, ElementsAre(7, 1));
  // Translating a page id with the map of token slots yields another page.
  build_page_table(make_requests(rows, seqlen_kv), 4, 2, wrong);
  translate_slots(slot_map_.data(), wrong, wrong);
  EXPECT_NE(wrong, page_table);
}

TEST_F(SwaTranslation, KeepsMinusOneInWriteSlots) {
  const std::vector<int32_t> slots{20, -1, 11, 0};
  std::vector<int32_t> translated(4);
  translate_slots(slot_map_.data(), slots, translated);
  EXPECT_THAT(translated, ElementsAre(4, -1, 31, 0));
}

TEST_F(SwaTranslation, WorksInPlace) {
  std::vector<int32_t> slots{8, -1, 23};
  translate_slots(slot_map_.data(), slots, slots);
  EXPECT_THAT(slots, ElementsAre(28, -1, 7));
}

TEST_F(SwaTranslation, RejectsOtherNegativeSlotsAndOtherSizes) {
  std::vector<int32_t> slots{8, -2}, one(1);
  EXPECT_EQ(
      error_message(ErrorCode::kInvalidArgument, [&] { translate_slots(slot_map_.data(), slots, slots); }),
      "slot -2 at 1: translate_slots needs a token slot or -1");
  EXPECT_EQ(
      error_message(ErrorCode::kInvalidArgument, [&] { translate_slots(slot_map_.data(), slots, one); }),
      "translated of 1 slots: translate_slots has 2");
}

// FlashInfer's example: lengths 3 and 5 with pages of one token.
TEST(BuildCsr, ConcatenatesThePagesOfRequests) {
  const std::vector<int32_t> table{10, 11, 12, 0, 0, 20, 21, 22, 23, 24}, rows{0, 1}, seqlen_kv{3, 5};
  const RequestRows requests{.table = table.data(), .stride = 5, .rows = rows, .seqlen_kv = seqlen_kv};
  std::vector<int32_t> indptr(3), indices(8);
  build_csr(requests, 1, indptr, indices);
  EXPECT_THAT(indptr, ElementsAre(0, 3, 8));
  EXPECT_THAT(indices, ElementsAre(10, 11, 12, 20, 21, 22, 23, 24));
}

TEST(BuildCsr, CountsPagesAndDoesNotWritePastTheEnd) {
  const std::vector<int32_t> rows{1, 1, 2}, seqlen_kv{9, 0, 5};
  std::vector<int32_t> indptr(4), indices(7, -1);
  build_csr(make_requests(rows, seqlen_kv), 4, indptr, indices);
  EXPECT_THAT(indptr, ElementsAre(0, 3, 3, 5));
  EXPECT_THAT(indices, ElementsAre(2, 5, 9, 10, 3, -1, -1));
}

// Draft step s of a request with K branches is represented by K requests with its prefix and s + 1 draft
// tokens. The documentation's example: prefixes 5 and 3, two branches.
TEST(BuildCsr, PlacesTheBranchesOfADraftStep) {
  std::vector<int32_t> table(4 * 7);
  std::iota(table.begin(), table.end(), 1);
  const std::vector<int32_t> rows{0, 1, 2, 3};
  for (const auto& [num_drafts, expected] :
       {std::pair{1, std::vector<int32_t>{0, 6, 12, 16, 20}}, {2, std::vector<int32_t>{0, 7, 14, 19, 24}}}) {
    const std::vector<int32_t> seqlen_kv{5 + num_drafts, 5 + num_drafts, 3 + num_drafts, 3 + num_drafts};
    std::vector<int32_t> indptr(5), indices(24);
    build_csr({.table = table.data(), .stride = 7, .rows = rows, .seqlen_kv = seqlen_kv}, 1, indptr, indices);
    EXPECT_EQ(indptr, expected);
  }
}

TEST(BuildPageTable, NamesMismatchedArguments) {
  const std::vector<int32_t> rows{1, 2}, one{1}, seqlen_kv{9, 5}, too_long{9, 10}, negative{9, -1};
  std::vector<int32_t> page_table(6);
  const auto error_text = [&](const RequestRows& requests, int page_size, int width, size_t num_entries) {
    return error_message(ErrorCode::kInvalidArgument, [&] {
      build_page_table(requests, page_size, width, View<int32_t>(page_table).first(num_entries));
    });
  };
  EXPECT_EQ(error_text(make_requests(rows, seqlen_kv), 4, 2, 6),
            "width 2: build_page_table needs 3 pages for request 0");
  EXPECT_EQ(error_text(make_requests(rows, seqlen_kv), 4, 3, 5),
            "page_table of 5 entries: build_page_table needs 2 x 3");
  EXPECT_EQ(error_text(make_requests(rows, too_long), 4, 3, 6),
            "seqlen_kv 10 of request 1: build_page_table supports 0 to 9, the length of a row");
  EXPECT_EQ(error_text(make_requests(rows, negative), 4, 3, 6),
            "seqlen_kv -1 of request 1: build_page_table supports 0 to 9, the length of a row");
  EXPECT_EQ(error_text(make_requests(one, seqlen_kv), 4, 3, 6),
            "rows of 1 requests: build_page_table has seqlen_kv of 2");
  for (int page_size : {0, 3, 512})
    EXPECT_EQ(
        error_text(make_requests(rows, seqlen_kv), page_size, 3, 6),
        "page_size " + std::to_string(page_size) + ": build_page_table needs a power of two from 1 to 256");
}

TEST(BuildCsr, NamesMismatchedArguments) {
  const std::vector<int32_t> rows{1, 2}, seqlen_kv{9, 5};
  std::vector<int32_t> indptr(3), indices(5);
  const auto error_text = [&](int page_size, size_t num_indptr, size_t num_indices) {
    return error_message(ErrorCode::kInvalidArgument, [&] {
      build_csr(make_requests(rows, seqlen_kv), page_size, View<int32_t>(indptr).first(num_indptr),
                View<int32_t>(indices).first(num_indices));
    });
  };
  EXPECT_EQ(error_text(4, 2, 5), "indptr of 2 entries: build_csr needs 3");
  EXPECT_EQ(error_text(4, 3, 4), "indices of 4 entries: build_csr needs 5");
  EXPECT_EQ(error_text(48, 3, 5), "page_size 48: build_csr needs a power of two from 1 to 256");
}

TEST(Metadata, DoesNotAllocateOnTheHeap) {
  const std::vector<int32_t> rows{1, 2}, seqlen_kv{9, 5}, slot_map(48);
  std::vector<int32_t> page_table(6), indptr(3), indices(5), slots{8, -1};
  const RequestRows requests = make_requests(rows, seqlen_kv, nullptr);
  const int64_t before = testing_support::num_allocations();
  build_page_table(requests, 4, 3, page_table);
  build_csr(requests, 4, indptr, indices);
  translate_slots(slot_map.data(), slots, slots);
  EXPECT_EQ(testing_support::num_allocations(), before);
}

TEST(Metadata, IsEmptyForAnEmptyBatch) {
  std::vector<int32_t> indptr(1, -1);
  build_page_table(make_requests({}, {}), 4, 3, {});
  build_csr(make_requests({}, {}), 4, indptr, {});
  EXPECT_THAT(indptr, ElementsAre(0));
}

}  // namespace
}  // namespace attend::kernels
