// Dense layers: out = x W^T + b.
#pragma once

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// RMSNorm of x before the product: as rms_norm() of elementwise.h.
struct InputNorm {
  TensorView weight;  // [in_features]; empty: x is taken as it is
  float eps = 0.0f;
  TensorView normalized;  // as x: scratch, which kernels that norm x while they multiply leave alone
  // [num_rows, in_features / kPartialSquaresWidth] of f32: scratch; empty: this norm is not deferred.
  TensorView partial_squares = {};
  // Deferred: the GEMM that left x has left x times the weight, rounded once, in `normalized`, and partial
  // sums of squares of x in `partial_squares` (linear() says so). Whoever takes x may then scale its
  // accumulators in place of norming x; who cannot norms x into `normalized`, so a deferred norm is good for
  // one GEMM.
  bool deferred = false;
};
inline constexpr int64_t kPartialSquaresWidth = 16;  // neighboring features whose squares a partial sum has

// On a GPU weights, biases and the norm's weights may be read before the kernels launched before on the
// stream have ended, so none of these may write them: who writes them in a kernel synchronizes, or records an
// event behind it, first.
struct LinearArgs {
  // [num_rows, in_features]; last stride 1, rows that do not overlap. CPU: f32; GPU: f32, f16, bf16
  TensorView x;
  Weight weight;    // [out_features, in_features]; on a GPU a plain one is of the dtype of x
  TensorView bias;  // [out_features]: f32, f16, bf16; empty: none
  TensorView out;   // [num_rows, out_features]: dtype of x, or f32; strides as for x
  // linear_workspace_bytes() of the stream's device, aligned to 64; overwritten. Empty: slower kernels
  // that need none.
  View<std::byte> workspace = {};
  // A row's bits depend neither on the other rows nor on their number, nor on a GPU on its place among them
  // as long as x's rows keep their alignment to 16 bytes: one order of additions for all of them, which for
  // many rows may be slower. A GPU then norms x in a launch before.
  bool batch_invariant = false;
  // CPU: x may be rounded to bfloat16 before it meets plain weights in bfloat16, as models of 16 bits round
  // their activations. GPU: to fp8, each row, or each 128 inputs of a row, by a scale of its own, before it
  // meets weights in fp8. Faster.
  bool rounds_x = false;
  InputNorm norm = {};
  // out += x weight^T + bias, rounded once. GPU only.
  bool accumulate = false;
  // The norm that takes out next, of a GEMM behind this one, which a kernel that can defers. What it leaves
  // may not lie where x, or `normalized` of this GEMM's norm, does.
  const InputNorm* next_norm = nullptr;
};
// Accumulates in float32; CPUs with AMX, or where rounds_x, may take factors below 2^-126 (subnormal in
// float32, or such parts of a number) for 0. A row's result does not depend on the other rows' values. Throws
// Error(kInvalidArgument) for shapes, dtypes and workspaces that do not fit, Error(kUnsupported) for what the
// stream's device has no kernel for. Returns whether next_norm is deferred now.
bool linear(const LinearArgs& args, Stream& stream);
// Whether this machine's CPU rounds where rounds_x lets it: one with AVX-512-BF16 and without AMX.
bool cpu_rounds_x();
// What linear() refuses; nothing is computed.
void check(const LinearArgs& args, const Stream& stream);

// Bytes that the fastest kernels of a device want for products of up to max_rows rows and max_in_features
// input features with today's num_threads(), by plain weights or by those of any other format. 0 where they
// need none.
size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, const Device& device,
                              WeightFormat format = WeightFormat::kPlain);

// The first half of a gated MLP: out = silu(gate) * up with [gate | up] = x W^T + b.
struct GatedLinearArgs {
  TensorView x;                    // [num_rows, in_features]
  Weight weight;                   // [2 * intermediate, in_features]
  TensorView bias;                 // [2 * intermediate]; empty: none
  TensorView gate_up;              // [num_rows, 2 * intermediate]: scratch
  TensorView out;                  // [num_rows, intermediate]
  View<std::byte> workspace = {};  // as of linear()
  bool batch_invariant = false;    // as of linear()
  bool rounds_x = false;           // as of linear()
  InputNorm norm = {};             // as of linear()
};
// dtypes, strides and errors as of linear() and silu_mul(). On a GPU a few rows are one launch.
void gated_linear(const GatedLinearArgs& args, Stream& stream);

// Dense layers of heads: each head has a weight of its own.

// Last strides of x and out are 1, their other strides any. The weight has stride 1 in one of its last two
// dimensions: a slice of a matrix, or one that is read transposed.
struct HeadLinearArgs {
  TensorView x;       // [num_tokens, num_heads, in_features]. CPU: f32; GPU: f32, f16, bf16
  TensorView weight;  // [num_heads, out_features, in_features]: f32, f16, bf16; on a GPU of the dtype of x
  TensorView out;     // [num_tokens, num_heads, out_features]: as x
  View<std::byte> workspace = {};  // as of linear()
  bool batch_invariant = false;    // as of linear()
};
// out[t, h] = weight[h] x[t, h], added up in float32. Throws Error(kInvalidArgument) for shapes, strides and
// devices, Error(kUnsupported) for dtypes.
void head_linear(const HeadLinearArgs& args, Stream& stream);
void check(const HeadLinearArgs& args, const Stream& stream);

}  // namespace attend::kernels

#pragma GCC visibility pop
