#include "attend/kernels/attention/cpu/tile_rows.h"

#include <algorithm>

#include "attend/kernels/kv_store/cpu/store.h"
#include "attend/kernels/metadata/find_page.h"

namespace attend::kernels::cpu {
namespace {

constexpr uintptr_t kPrefetcherPage = 4096;

void prefetch_runs(const char* const (&rows)[kTileKeys], int64_t row_bytes) {
  const char* end = nullptr;  // end of the previous row
  for (const char* row : rows) {
    if (row == nullptr) continue;
    const bool crosses =
        reinterpret_cast<uintptr_t>(row) % kPrefetcherPage < static_cast<uintptr_t>(row_bytes);
    if (row != end || crosses) {
      __builtin_prefetch(row, 0, 2);
      __builtin_prefetch(row + 64, 0, 2);
    }
    end = row + row_bytes;
  }
}

}  // namespace

void prefetch_runs(const AttentionProblem& problem, const TileRows& rows) {
  const auto element_bytes = static_cast<int64_t>(size_of(problem.kv_dtype));
  prefetch_runs(rows.k, problem.k.dim * element_bytes);
  prefetch_runs(rows.v, problem.v.dim * element_bytes);
}

void prefetch_run_starts(const AttentionProblem& problem, const TileRows& rows) {
  const auto row_bytes = static_cast<int64_t>(size_of(problem.kv_dtype)) * problem.k.dim;
  const bool rows_touch = problem.k.token_stride == row_bytes;
  if (rows_touch && static_cast<uintptr_t>(problem.index.page_size * row_bytes) >= kPrefetcherPage)
    prefetch_runs(problem, rows);
}

void convert_rows(const TileRows& rows, uint16_t* memory, int stride, TileRows& converted) {
  static const RowKernels kernels = row_kernels(detect_isa());
  converted.present = rows.present;
  for (int key = 0; key < kTileKeys; ++key) {
    uint16_t* const to = rows.k[key] == nullptr ? nullptr : memory + key * stride;
    if (to != nullptr)
      read_scaled_row(kernels, reinterpret_cast<const std::byte*>(rows.k[key]), 1.0f, to, DType::kBF16);
    converted.k[key] = converted.v[key] = reinterpret_cast<const char*>(to);
  }
}

void locate_rows(const AttentionProblem& problem, int request, int kv_head, int32_t first, uint64_t present,
                 TileRows& rows) {
  const int page_size = problem.index.page_size;
  const int64_t k_stride = problem.k.token_stride, v_stride = problem.v.token_stride;
  const char* const k_head = problem.k.data + kv_head * problem.k.head_stride;
  const char* const v_head = problem.v.data + kv_head * problem.v.head_stride;
  rows.present = present;
  int count = 0;
  for (int begin = 0; begin < kTileKeys; begin += count) {
    const int offset = (first + begin) & (page_size - 1);
    count = std::min(page_size - offset, kTileKeys - begin);
    const uint64_t run = present >> begin & range_bits(0, count, 0);
    const int64_t page = run == 0 ? 0 : find_page(problem.index, request, first + begin);
    const char* k_row = k_head + page * problem.k.page_stride + offset * k_stride;
    const char* v_row = v_head + page * problem.v.page_stride + offset * v_stride;
    if (run == range_bits(0, count, 0)) {
      for (int i = 0; i < count; ++i) {
        rows.k[begin + i] = k_row + i * k_stride;
        rows.v[begin + i] = v_row + i * v_stride;
      }
      continue;
    }
    for (int i = 0; i < count; ++i) {
      const bool is_present = run >> i & 1;
      rows.k[begin + i] = is_present ? k_row + i * k_stride : nullptr;
      rows.v[begin + i] = is_present ? v_row + i * v_stride : nullptr;
    }
  }
}

}  // namespace attend::kernels::cpu
