// Row operations that other interfaces require around attention: rows of queries, new keys or results are
// copied from one tensor to another, rotated by their positions (RoPE) and multiplied by factors in device
// memory.
#pragma once

#include "attend/kernels/metadata/lengths.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Angles of the first 2 * pairs elements of a head; the others are not rotated.
struct RowAngles {
  TensorView cos = {}, sin = {};  // [num_positions, pairs]: f32, f16, bf16; last stride 1; empty: no rotation
  bool interleaved = false;       // pairs are (2 i, 2 i + 1); otherwise (i, i + pairs)
  Lengths first_position = {};    // position of each request's first token: `per_request` or `uniform`
  bool same_position = false;     // all tokens of a request have that position; otherwise positions are
                                  // consecutive
};

// Factor data[request * request_stride + head / heads_each * head_stride]; null: none.
struct RowScale {
  const float* data = nullptr;
  int64_t request_stride = 0, head_stride = 0;
  int32_t heads_each = 1;
};

// Factor of a row: the product of the two.
struct RowScales {
  RowScale first = {}, second = {};
};

struct RopeRowsArgs {
  TensorView from = {}, to = {};  // [num_tokens, num_heads, head_dim]: f32, f16, bf16; last stride 1
  int32_t num_reqs = 0;
  // Requests in `from`: `cu` or `uniform`. Tokens after the last request are copied unchanged.
  Lengths seqlens = {};
  RowAngles angles = {};
  RowScales scales = {};
};
// Checks shapes, dtypes and strides. Throws Error with the invalid argument.
void check(const RopeRowsArgs& args);
// to = scales * rotated(from), computed in float32 and rounded once; `to` may be `from`. Positions must be
// rows of cos and sin. On the CPU, throws Error(kInvalidArgument) with the request otherwise. On a GPU, where
// the host does not read positions, a position past the last row uses the angles of the last row.
void apply_rope_rows(const RopeRowsArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
