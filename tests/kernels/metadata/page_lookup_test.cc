// Lookup of a request's pages in kernels (kernels/attention/cuda/common/page_lookup.h).
#include "attend/kernels/attention/cuda/common/page_lookup.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace attend::kernels::cuda {
namespace {

constexpr int kNumReqs = 3, kNumPositions = 70;

// Slots in pages of `page_size`: page p of a request starts at slot order(p) * page_size.
struct Tables {
  explicit Tables(int page_size) {
    slots.resize(kNumReqs * kNumPositions);
    for (size_t i = 0; i < slots.size(); ++i)
      slots[i] = static_cast<int32_t>(i / page_size * 37 % 211 * page_size + i % page_size);
    pages.resize(kNumReqs * kNumPositions);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i * 53 % 199);
    slot_map.resize(static_cast<size_t>(211) * page_size);
    for (size_t i = 0; i < slot_map.size(); ++i)
      slot_map[i] = static_cast<int32_t>((i / page_size * 5 + 3) % 211 * page_size + i % page_size);
  }
  std::vector<int32_t> slots, pages, slot_map, rows{2, 0, 1}, indptr{0, 41, 90, 140};
};

void expect_same_pages(const KvIndex& index) {
  for (int request = 0; request < kNumReqs; ++request) {
    const PageLookup lookup(index, request);
    for (int position = 0; position + 5 < kNumPositions; ++position) {
      const int positions[] = {position, position + 5, -7};
      const bool wanted[] = {true, position % 3 > 0, false};
      int entries[3];
      lookup.look_up(positions, wanted, entries);
      EXPECT_EQ(lookup.find_page(entries[0]), find_page(index, request, position));
      EXPECT_EQ(lookup.find_page(entries[1]), wanted[1] ? find_page(index, request, position + 5) : -1);
      EXPECT_EQ(lookup.find_page(entries[2]), -1);
    }
  }
}

class PageLookupOfSize : public testing::TestWithParam<int> {
 protected:
  Tables tables_{GetParam()};
  KvIndex index_{.page_size = GetParam(), .rows = tables_.rows.data(), .indptr = tables_.indptr.data()};
};

TEST_P(PageLookupOfSize, ReadsRowsOfRequests) {
  index_.kind = KvIndexKind::kRequestRows;
  index_.table = tables_.slots.data();
  index_.table_stride = kNumPositions;
  expect_same_pages(index_);
}

TEST_P(PageLookupOfSize, TranslatesSlots) {
  index_.kind = KvIndexKind::kRequestRows;
  index_.table = tables_.slots.data();
  index_.table_stride = kNumPositions;
  index_.slot_map = tables_.slot_map.data();
  expect_same_pages(index_);
}

TEST_P(PageLookupOfSize, ReadsPageTables) {
  index_.kind = KvIndexKind::kPageTable;
  index_.table = tables_.pages.data();
  index_.table_stride = kNumPositions;
  expect_same_pages(index_);
}

TEST_P(PageLookupOfSize, ReadsCsr) {
  index_.kind = KvIndexKind::kCsr;
  index_.table = tables_.pages.data();
  expect_same_pages(index_);
}

INSTANTIATE_TEST_SUITE_P(EachSize, PageLookupOfSize, testing::Values(1, 2, 8));

TEST(PageLookup, CountsContiguousRows) {
  const std::vector<int32_t> indptr{0, 41, 90, 140};
  expect_same_pages({.kind = KvIndexKind::kContiguous, .indptr = indptr.data()});
}

}  // namespace
}  // namespace attend::kernels::cuda
