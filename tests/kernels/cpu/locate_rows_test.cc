#include <gtest/gtest.h>

#include <vector>

#include "attend/kernels/attention/cpu/tile_rows.h"

namespace attend::kernels::cpu {
namespace {

// Only addresses are compared.
const char* const kBase = reinterpret_cast<const char*>(uintptr_t{4096});

// K and V with different strides in every dimension.
AttentionProblem make_problem(int page_size) {
  AttentionProblem problem;
  problem.k = {.data = kBase, .dim = 8, .page_stride = 1 << 20, .token_stride = 32, .head_stride = 7};
  problem.v = {.data = kBase, .dim = 8, .page_stride = 1 << 22, .token_stride = 48, .head_stride = 5};
  problem.index.page_size = page_size;
  return problem;
}

int64_t address(const char* row) { return row - kBase; }

TEST(LocateRows, FindsTheRowsOfEveryPageSize) {
  for (int page_size = 1; page_size <= 256; page_size *= 2) {
    AttentionProblem problem = make_problem(page_size);
    std::vector<int32_t> pages(600);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(1000 - i);
    problem.index.kind = KvIndexKind::kPageTable;
    problem.index.table = pages.data();
    TileRows rows;
    locate_rows(problem, 0, 2, 128, ~uint64_t{0}, rows);
    for (int i = 0; i < kTileKeys; ++i) {
      const int64_t page = 1000 - (128 + i) / page_size, offset = (128 + i) % page_size;
      EXPECT_EQ(address(rows.k[i]), page * (1 << 20) + offset * 32 + 2 * 7) << page_size << ' ' << i;
      EXPECT_EQ(address(rows.v[i]), page * (1 << 22) + offset * 48 + 2 * 5) << page_size << ' ' << i;
    }
  }
}

TEST(LocateRows, ReadsNoTableEntriesOfMissingKeys) {
  AttentionProblem problem = make_problem(1);
  // Only positions 63 and 64 have slots. Other positions would be mapped far outside memory.
  std::vector<int32_t> slots(128, 0x7fffff00);
  slots[63] = 0;
  slots[64] = 1;
  const std::vector<int32_t> slot_map = {3, 4};
  const int32_t row = 0;
  problem.index = {.kind = KvIndexKind::kRequestRows,
                   .page_size = 1,
                   .table = slots.data(),
                   .table_stride = 128,
                   .rows = &row,
                   .slot_map = slot_map.data()};
  TileRows rows;
  locate_rows(problem, 0, 0, 0, uint64_t{1} << 63, rows);
  EXPECT_EQ(address(rows.k[63]), 3 << 20);
  for (int i = 0; i < 63; ++i) EXPECT_EQ(rows.k[i], nullptr) << i;
  locate_rows(problem, 0, 0, 64, 1, rows);
  EXPECT_EQ(address(rows.v[0]), int64_t{4} << 22);
  EXPECT_EQ(rows.v[1], nullptr);
}

}  // namespace
}  // namespace attend::kernels::cpu
