// Converts keys and values of FlashAttention's interface to pages for the kernels.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/kv_store/batch_arrays.h"
#include "tensors/tensor_argument.h"

namespace attend::python {

// Tensor with its argument's name, for messages.
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

// Throws Error that names the argument unless k and v have the same dtype and shape (except the head dim) and
// match queries [..., num_q_heads, head_dim].
void require_keys_for(const NamedView& q, const KeyTensors& keys);

// Throws Error that names the argument unless new keys and values have the heads and head dims of the cache.
void require_appendable(const KeyTensors& new_keys, const KeyTensors& keys);

struct KeyLayout {
  kernels::KvView kv;              // the index of dense rows has no indptr, which is derived from `locations`
  kernels::KvLocations locations;  // positions and capacity of appended keys
  kernels::Lengths seqlens = {};   // keys per request, unless given by the caller
};

// Layout of [num_pages, page_size, num_kv_heads, head_dim] with page_table int32 [num_reqs, width]. Entries
// past the request's keys are not read.
KeyLayout paged_keys(const KeyTensors& keys, const NamedView& page_table, int num_reqs);

// Layout of [num_rows, seqlen, num_kv_heads, head_dim]; request r has row rows[r], or row r if `rows` is
// empty. Rows may be strided, equally in k and v.
KeyLayout dense_keys(const KeyTensors& keys, View<const int32_t> rows, int num_reqs);

// Layout of [total_k, num_kv_heads, head_dim], requests in sequence: cu_seqlens_k has num_reqs + 1 entries.
KeyLayout ragged_keys(const KeyTensors& keys, View<const int32_t> cu_seqlens_k);

}  // namespace attend::python
