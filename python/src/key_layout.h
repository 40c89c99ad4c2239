// Keys and values as FlashAttention's interface passes them, as pages for the kernels.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/kv_store/batch_arrays.h"
#include "tensor_argument.h"

namespace attend::python {

// A tensor under its argument's name, for messages.
struct NamedView {
  std::string_view name;
  const TensorView& view;
};
inline std::ostream& operator<<(std::ostream& out, const NamedView& named) {
  return out << named.name << " " << named.view;
}

struct KeyTensors {
  NamedView k, v;
};

// Throws Error naming the argument unless k and v, of one shape but for the head dim and of one dtype, are
// keys that queries [..., num_q_heads, head_dim] may see.
void require_keys_for(const NamedView& q, const KeyTensors& keys);

// Throws Error naming the argument unless new keys and values are of the heads and head dims of the cache's.
void require_appendable(const KeyTensors& new_keys, const KeyTensors& keys);

struct KeyLayout {
  kernels::KvView kv;              // the index of dense rows has no indptr: it is derived from `locations`
  kernels::KvLocations locations;  // where appended keys go, and for how many there is room
  kernels::Lengths seqlens = {};   // keys of each request, unless the caller says
};

// [num_pages, page_size, num_kv_heads, head_dim], and page_table int32 [num_reqs, width]. What a row holds
// beyond the request's keys is not read.
KeyLayout paged_keys(const KeyTensors& keys, const NamedView& page_table, int num_reqs);

// [num_rows, seqlen, num_kv_heads, head_dim]; request r has row rows[r], or row r when `rows` is empty. Rows
// may lie apart, in k and v alike.
KeyLayout dense_keys(const KeyTensors& keys, View<const int32_t> rows, int num_reqs);

// [total_k, num_kv_heads, head_dim], one request after another: cu_seqlens_k of num_reqs + 1 entries.
KeyLayout ragged_keys(const KeyTensors& keys, View<const int32_t> cu_seqlens_k);

}  // namespace attend::python
