#include "attention/key_layout.h"

#include <algorithm>
#include <limits>

#include "tensors/arguments.h"

namespace attend::python {
namespace {

int32_t to_int32(std::string_view what, int64_t value) {
  require(value <= std::numeric_limits<int32_t>::max(), what, " ", value, ": expected below 2^31");
  return static_cast<int32_t>(value);
}

// Views [total, heads, dim] as pages of one token.
TensorView as_tokens(const TensorView& view) {
  TensorView tokens = view;
  tokens.rank = 4;
  tokens.shape = {view.shape[0], 1, view.shape[1], view.shape[2]};
  tokens.strides = {view.strides[0], view.strides[0], view.strides[1], view.strides[2]};
  return tokens;
}

// Returns the distance in tokens between rows of [rows, seqlen, heads, dim].
int64_t row_spacing(const TensorView& view) {
  if (view.shape[0] <= 1 || view.strides[1] <= 0) return view.shape[1];
  return std::max(view.shape[1], view.strides[0] / view.strides[1]);
}

// Returns the distance in tokens between pages of [num_pages, page_size, heads, dim]; 0 if it is not an
// integer.
int64_t page_spacing(const TensorView& view) {
  if (view.shape[0] <= 1 || view.strides[1] <= 0) return view.shape[1];
  return view.strides[0] % view.strides[1] == 0 ? view.strides[0] / view.strides[1] : 0;
}

// Views [rows, seqlen, heads, dim] as pages of one token, with rows `spacing` tokens apart.
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

void require_rank(const NamedView& named, int rank, std::string_view shape) {
  require(named.view.rank == rank, named, ": expected ", shape);
}

// Returns a size counted from the last dimension: 0 is the head dim, 1 the heads.
int64_t from_end(const TensorView& view, int dim) {
  return view.shape[static_cast<size_t>(view.rank - 1 - dim)];
}

void require_unit_stride(const NamedView& named) {
  const auto last = static_cast<size_t>(named.view.rank) - 1;
  if (named.view.strides[last] != 1 && named.view.shape[last] != 1)
    fail(ErrorCode::kUnsupported, named, ": stride ", named.view.strides[last],
         " in the last dimension, kernels require 1");
}

}  // namespace

void require_keys_for(const NamedView& q, const KeyTensors& keys) {
  const auto& [k, v] = keys;
  require(from_end(q.view, 0) > 0, q, ": expected a head_dim above 0");
  require(from_end(v.view, 0) > 0, v, ": expected a head_dim above 0");
  require(from_end(k.view, 0) == from_end(q.view, 0), k, ": expected a head_dim of ", from_end(q.view, 0),
          ", as ", q);
  require(std::equal(k.view.shape.begin(), k.view.shape.begin() + k.view.rank - 1, v.view.shape.begin()), v,
          ": expected the shape of ", k, " except the last dimension");
  require(v.view.dtype == k.view.dtype, v, ": expected ", k.view.dtype, ", as ", k.name);
  const int64_t num_q_heads = from_end(q.view, 1), num_kv_heads = from_end(k.view, 1);
  require(num_kv_heads > 0 && num_q_heads % num_kv_heads == 0, k,
          ": expected a number of heads that divides the ", num_q_heads, " of ", q.name);
  for (const NamedView& named : {q, k, v}) require_unit_stride(named);
}

void require_appendable(const KeyTensors& new_keys, const KeyTensors& keys) {
  const auto require_like = [](const NamedView& added, const NamedView& cache) {
    require(from_end(added.view, 1) == from_end(cache.view, 1) &&
                from_end(added.view, 0) == from_end(cache.view, 0),
            added, ": expected ", from_end(cache.view, 1), " heads and a head_dim of ",
            from_end(cache.view, 0), ", as ", cache);
    require_unit_stride(added);
  };
  require_like(new_keys.k, keys.k);
  require_like(new_keys.v, keys.v);
  const TensorView &k = new_keys.k.view, &v = new_keys.v.view;
  require(std::equal(k.shape.begin(), k.shape.begin() + k.rank - 1, v.shape.begin()), new_keys.v,
          ": expected the shape of ", new_keys.k, " except the last dimension");
}

KeyLayout paged_keys(const KeyTensors& keys, const NamedView& named_table, int num_reqs) {
  const TensorView &k = keys.k.view, &v = keys.v.view, &page_table = named_table.view;
  require_rank(keys.k, 4, "[num_pages, page_size, num_kv_heads, head_dim] with a page_table");
  require_rank(keys.v, 4, "[num_pages, page_size, num_kv_heads, head_dim_v] with a page_table");
  const int32_t page_size = get_page_size(k);
  require(page_table.rank == 2 && page_table.dtype == DType::kI32 && page_table.shape[0] == num_reqs &&
              (page_table.strides[1] == 1 || page_table.shape[1] <= 1),
          named_table, ": expected int32 [", num_reqs, ", width] with rows in one run");
  require(page_table.device == k.device, named_table, ": expected on ", k.device);
  const auto* const table = static_cast<const int32_t*>(page_table.data);
  const int64_t spacing = page_spacing(k);
  const bool as_tokens =
      spacing == page_spacing(v) && spacing * k.shape[0] <= std::numeric_limits<int32_t>::max();
  return {
      .kv = {.k = k,
             .v = v,
             .index = {.kind = kernels::KvIndexKind::kPageTable,
                       .page_size = page_size,
                       .table = table,
                       .table_stride = page_table.strides[0]}},
      .locations = {.table = table,
                    .table_stride = page_table.strides[0],
                    .page_size = page_size,
                    .page_spacing = as_tokens ? static_cast<int32_t>(spacing) : 0,
                    .capacity = to_int32("keys of a row of page_table", page_table.shape[1] * page_size)}};
}

KeyLayout dense_keys(const KeyTensors& keys, View<const int32_t> rows, int num_reqs) {
  const TensorView &k = keys.k.view, &v = keys.v.view;
  require_rank(keys.k, 4, "[batch, seqlen, num_kv_heads, head_dim]");
  require_rank(keys.v, 4, "[batch, seqlen, num_kv_heads, head_dim_v]");
  require(v.shape[0] == k.shape[0] && v.shape[1] == k.shape[1], keys.v, ": expected batch and seqlen of ",
          keys.k);
  require(rows.empty() ? k.shape[0] == num_reqs : rows.size() == static_cast<size_t>(num_reqs), keys.k,
          ", cache_batch_idx of ", rows.size(), " entries: expected a row, or an entry, for each of ",
          num_reqs, " requests");
  const int64_t spacing = row_spacing(k);
  const int32_t seqlen = to_int32("seqlen", k.shape[1]);
  KeyLayout layout{.kv = {.k = as_rows(keys.k.name, k, spacing),
                          .v = as_rows(keys.v.name, v, spacing),
                          .index = {.kind = kernels::KvIndexKind::kContiguous}},
                   .locations = {.rows = rows.empty() ? nullptr : rows.data(),
                                 .row_spacing = static_cast<int32_t>(spacing),
                                 .capacity = seqlen},
                   .seqlens = {.uniform = seqlen}};
  to_int32("tokens of k", layout.kv.k.shape[0]);
  return layout;
}

KeyLayout ragged_keys(const KeyTensors& keys, View<const int32_t> cu_seqlens_k) {
  const TensorView &k = keys.k.view, &v = keys.v.view;
  require_rank(keys.k, 3, "[total_k, num_kv_heads, head_dim] with cu_seqlens_k");
  require_rank(keys.v, 3, "[total_k, num_kv_heads, head_dim_v] with cu_seqlens_k");
  return {.kv = {.k = as_tokens(k),
                 .v = as_tokens(v),
                 .index = {.kind = kernels::KvIndexKind::kContiguous, .indptr = cu_seqlens_k.data()}},
          .locations = {.begins = cu_seqlens_k.data(), .capacity = to_int32("tokens of k", k.shape[0])},
          .seqlens = {.cu = cu_seqlens_k.data()}};
}

}  // namespace attend::python
