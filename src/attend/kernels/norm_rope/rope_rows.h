// What other interfaces ask for around attention: rows of queries, new keys or results on their way from one
// tensor to another, rotated by their positions (RoPE) and multiplied by numbers that lie on the device.
#pragma once

#include "attend/kernels/metadata/lengths.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// The angles of the first 2 * pairs elements of a head; the others stay as they are.
struct RowAngles {
  TensorView cos = {}, sin = {};  // [num_positions, pairs]: f32, f16, bf16; last stride 1; empty: not rotated
  bool interleaved = false;       // pairs are (2 i, 2 i + 1); otherwise (i, i + pairs)
  Lengths first_position = {};    // of each request's first token: `per_request` or `uniform`
  bool same_position = false;     // all tokens of a request stand there; otherwise one after another
};

// Number [request * request_stride + head / heads_each * head_stride]; null: none.
struct RowScale {
  const float* data = nullptr;
  int64_t request_stride = 0, head_stride = 0;
  int32_t heads_each = 1;
};

// What a row is multiplied by: the product of the two.
struct RowScales {
  RowScale first = {}, second = {};
};

struct RopeRowsArgs {
  TensorView from = {}, to = {};  // [num_tokens, num_heads, head_dim]: f32, f16, bf16; last stride 1
  int32_t num_reqs = 0;
  Lengths seqlens =
      {};  // of the requests in `from`: `cu` or `uniform`. Tokens behind them are copied as they are
  RowAngles angles = {};
  RowScales scales = {};
};
// Shapes, dtypes and strides; throws Error naming what is wrong.
void check(const RopeRowsArgs& args);
// to = scales * rotated(from), in float32 and rounded once; `to` may be `from`. Positions are to be rows of
// cos and sin: on the CPU throws Error(kInvalidArgument) naming the request otherwise; on a GPU, where the
// host reads none, a position behind the last row takes the angles of the last.
void apply_rope_rows(const RopeRowsArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
