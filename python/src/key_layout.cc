#include "key_layout.h"

#include <algorithm>
#include <limits>

namespace attend::python {
namespace {

int32_t to_int32(std::string_view what, int64_t value) {
  require(value <= std::numeric_limits<int32_t>::max(), what, " ", value, ": expected below 2^31");
  return static_cast<int32_t>(value);
}

// [total, heads, dim] as pages of one token.
TensorView as_tokens(const TensorView& view) {
  TensorView tokens = view;
  tokens.rank = 4;
  tokens.shape = {view.shape[0], 1, view.shape[1], view.shape[2]};
  tokens.strides = {view.strides[0], view.strides[0], view.strides[1], view.strides[2]};
  return tokens;
}

// Tokens from one row of [rows, seqlen, heads, dim] to the next.
int64_t row_spacing(const TensorView& view) {
  if (view.shape[0] <= 1 || view.strides[1] <= 0) return view.shape[1];
  return std::max(view.shape[1], view.strides[0] / view.strides[1]);
}

// [rows, seqlen, heads, dim] as pages of one token, the rows `spacing` tokens apart.
TensorView as_rows(std::string_view name, const TensorView& view, int64_t spacing) {
  if (view.shape[0] > 1 && view.strides[0] != spacing * view.strides[1])
    fail(ErrorCode::kUnsupported, name, " ", view, ": strides ", view.strides[0], " and ", view.strides[1],
         " of rows and tokens: expected rows ", spacing, " tokens apart");
  TensorView tokens = view;
  tokens.shape[0] = view.shape[0] == 0 ? 0 : (view.shape[0] - 1) * spacing + view.shape[1];
  tokens.shape[1] = 1;
  tokens.strides[0] = view.strides[1];
  return tokens;
}

void require_rank(std::string_view name, const TensorView& view, int rank, std::string_view shape) {
  require(view.rank == rank, name, " ", view, ": expected ", shape);
}

}  // namespace

KeyLayout paged_keys(const TensorView& k, const TensorView& v, const TensorView& page_table, int num_reqs) {
  require_rank("k", k, 4, "[num_pages, page_size, num_kv_heads, head_dim] with a page_table");
  require_rank("v", v, 4, "[num_pages, page_size, num_kv_heads, head_dim_v] with a page_table");
  require(page_table.rank == 2 && page_table.dtype == DType::kI32 && page_table.shape[0] == num_reqs &&
              (page_table.strides[1] == 1 || page_table.shape[1] <= 1),
          "page_table ", page_table, ": expected int32 [", num_reqs, ", width] with rows in one run");
  require(page_table.device == k.device, "page_table ", page_table, ": expected on ", k.device);
  const int32_t page_size = to_int32("page_size", k.shape[1]);
  const auto* const table = static_cast<const int32_t*>(page_table.data);
  return {.kv = {.k = k,
                 .v = v,
                 .index = {.kind = kernels::KvIndexKind::kPageTable,
                           .page_size = page_size,
                           .table = table,
                           .table_stride = page_table.strides[0]}},
          .places = {.table = table,
                     .table_stride = page_table.strides[0],
                     .page_size = page_size,
                     .capacity = to_int32("keys of a row of page_table", page_table.shape[1] * page_size)}};
}

KeyLayout dense_keys(const TensorView& k, const TensorView& v, View<const int32_t> rows, int num_reqs) {
  require_rank("k", k, 4, "[batch, seqlen, num_kv_heads, head_dim]");
  require_rank("v", v, 4, "[batch, seqlen, num_kv_heads, head_dim_v]");
  require(v.shape[0] == k.shape[0] && v.shape[1] == k.shape[1], "v ", v, ": expected batch and seqlen of k ",
          k);
  require(rows.empty() ? k.shape[0] == num_reqs : rows.size() == static_cast<size_t>(num_reqs), "k ", k,
          ", cache_batch_idx of ", rows.size(), " entries: expected a row, or an entry, for each of ",
          num_reqs, " requests");
  const int64_t spacing = row_spacing(k);
  const int32_t seqlen = to_int32("seqlen", k.shape[1]);
  KeyLayout layout{.kv = {.k = as_rows("k", k, spacing),
                          .v = as_rows("v", v, spacing),
                          .index = {.kind = kernels::KvIndexKind::kContiguous}},
                   .places = {.rows = rows.empty() ? nullptr : rows.data(),
                              .row_spacing = static_cast<int32_t>(spacing),
                              .capacity = seqlen},
                   .seqlens = {.all = seqlen}};
  to_int32("tokens of k", layout.kv.k.shape[0]);
  return layout;
}

KeyLayout ragged_keys(const TensorView& k, const TensorView& v, View<const int32_t> cu_seqlens_k) {
  require_rank("k", k, 3, "[total_k, num_kv_heads, head_dim] with cu_seqlens_k");
  require_rank("v", v, 3, "[total_k, num_kv_heads, head_dim_v] with cu_seqlens_k");
  return {.kv = {.k = as_tokens(k),
                 .v = as_tokens(v),
                 .index = {.kind = kernels::KvIndexKind::kContiguous, .indptr = cu_seqlens_k.data()}},
          .places = {.capacity = to_int32("tokens of k", k.shape[0])},
          .seqlens = {.cu = cu_seqlens_k.data()}};
}

}  // namespace attend::python
