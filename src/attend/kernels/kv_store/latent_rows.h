// Gather of latent rows from a pool, for models that compute expanded keys and values from them.
#pragma once

#include <cstdint>

#include "attend/kernels/metadata/metadata.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Positions [first, first + count) of every request's prefix, the keys before its new tokens.
struct GatherLatentArgs {
  TensorView cache;    // [num_pages, page_size, width]: any float dtype, last stride 1; or scaled rows
  float scale = 1.0f;  // descale: rows are cache * scale
  RequestRows requests;
  View<const int32_t> cu_seqlen_q;  // [num_reqs + 1] new tokens
  int32_t first = 0, count = 0;
  TensorView out;              // [num_rows, width]: f32, f16, bf16, contiguous; num_rows >= num_reqs * count
  View<int32_t> cu_seqlen_kv;  // [num_reqs + 1]; output: cumulative rows of each request
  View<int32_t> seqlen_kv;     // [num_reqs]; output: rows of each request
};
// Row cu_seqlen_kv[r] + i of out is the row of position first + i of request r. Rows after the last one are
// not written. Throws Error(kInvalidArgument) for invalid shapes and dtypes.
void gather_latent(const GatherLatentArgs& args, Stream& stream);

// lengths[i] = sums[i + 1] - sums[i]; `sums` has one more entry.
void cu_seqlens_to_lengths(View<const int32_t> sums, View<int32_t> lengths, Stream& stream);

// to[t, h] = from[t] for every head h. from: [num_tokens, dim]; to: [num_tokens, num_heads, dim], same dtype;
// f32, f16, bf16, last strides 1.
void copy_to_heads(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace attend::kernels
