#include "attend/kernels/cpu/tile_rows.h"

#include <algorithm>

namespace attend::kernels::cpu {

void locate_rows(const AttentionProblem& problem, int request, int kv_head, int32_t first, uint64_t present,
                 TileRows& rows) {
  const int page_size = problem.index.page_size;
  const char* const k_head = problem.k.data + kv_head * problem.k.head_stride;
  const char* const v_head = problem.v.data + kv_head * problem.v.head_stride;
  rows.present = present;
  int count = 0;
  for (int begin = 0; begin < kTileKeys; begin += count) {
    const int offset = (first + begin) & (page_size - 1);
    count = std::min(page_size - offset, kTileKeys - begin);
    const uint64_t run = present >> begin & range_bits(0, count, 0);
    const int64_t page = run == 0 ? 0 : page_of(problem.index, request, first + begin);
    const char* k_row = k_head + page * problem.k.page_stride + offset * problem.k.token_stride;
    const char* v_row = v_head + page * problem.v.page_stride + offset * problem.v.token_stride;
    for (int i = 0; i < count; ++i) {
      const bool is_present = run >> i & 1;
      rows.k[begin + i] = is_present ? k_row + i * problem.k.token_stride : nullptr;
      rows.v[begin + i] = is_present ? v_row + i * problem.v.token_stride : nullptr;
    }
  }
}

}  // namespace attend::kernels::cpu
