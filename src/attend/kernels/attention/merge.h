// Merging partial attention results by their LSE (cascade, splits, chunked prefix).
//
// With m = max(a, b), wa = e^(a - m), wb = e^(b - m): out = (out_a wa + out_b wb) / (wa + wb), lse = m +
// ln(wa + wb). Two empty rows (LSE -inf) stay empty: out 0, LSE -inf. The output of an empty part is not
// read, and an LSE of +inf, other libraries' mark of an empty row, counts as -inf.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct MergeArgs {
  TensorView out_a, out_b;  // [num_tokens, num_q_heads, head_dim]: f32, f16, bf16
  TensorView lse_a, lse_b;  // [num_tokens, num_q_heads]: f32, natural log
  TensorView out;           // as out_a; may be out_a
  TensorView lse;           // as lse_a; may be lse_a; empty: not wanted
};
// Shapes and dtypes; throws Error naming what is wrong.
void check(const MergeArgs& args);
void merge(const MergeArgs& args, Stream& stream);

struct MergeSplitsArgs {
  TensorView partial_out;        // [num_splits, num_tokens, num_q_heads, head_dim]: f32
  TensorView partial_lse;        // [num_splits, num_tokens, num_q_heads]: f32
  View<const float> sinks = {};  // [num_q_heads]; empty: none
  TensorView out;                // [num_tokens, num_q_heads, head_dim]: f32, f16, bf16
  TensorView lse;                // [num_tokens, num_q_heads]: f32, sinks excluded; empty: not wanted
};
void check(const MergeSplitsArgs& args);
// Left to right, split 0 first.
void merge_splits(const MergeSplitsArgs& args, Stream& stream);

namespace reference {
void merge(const MergeArgs& args);
void merge_splits(const MergeSplitsArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
