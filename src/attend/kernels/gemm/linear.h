// Linear layers: out = x W^T + b.
#pragma once

#include <span>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// RMSNorm of x before the product, as defined by rms_norm() of elementwise.h.
struct InputNorm {
  TensorView weight;  // [in_features]; empty: no norm
  float eps = 0.0f;
  TensorView normalized;  // scratch of the shape of x; not used by kernels that normalize x while they
                          // multiply
  // [num_rows, in_features / kPartialSquaresWidth] of f32: scratch; empty: this norm is not deferred.
  TensorView partial_squares = {};
  // Deferred norm: linear() of the previous GEMM returned true. It wrote x times the norm weight, rounded
  // once, to `normalized`, and partial sums of squares of x to `partial_squares`. The next GEMM may then
  // scale its accumulators instead of normalizing x. A kernel that cannot do this overwrites `normalized`
  // with the normalized x, so a deferred norm serves one GEMM only.
  bool deferred = false;
};
inline constexpr int64_t kPartialSquaresWidth = 16;  // neighboring features per partial sum of squares

// On a GPU, kernels may read weights, biases and norm weights before earlier kernels of the stream have
// finished, so earlier kernels must not write them. A caller that writes them in a kernel must synchronize,
// or record an event after it, first.
struct LinearArgs {
  // [num_rows, in_features]; last stride 1, rows that do not overlap. CPU: f32; GPU: f32, f16, bf16.
  TensorView x;
  Weight weight;    // [out_features, in_features]; on a GPU a plain weight has the dtype of x
  TensorView bias;  // [out_features]: f32, f16, bf16; empty: none
  TensorView out;   // [num_rows, out_features]: dtype of x, or f32; strides like x
  // linear_workspace_bytes() bytes on the stream's device, aligned to 64; overwritten. If empty, slower
  // kernels run that need no workspace.
  View<std::byte> workspace = {};
  // If true, a row's bits depend neither on other rows nor on their number. On a GPU they do not depend on
  // the row's index either, if x's rows keep their alignment to 16 bytes. All rows use one order of
  // additions, which may be slower for many rows. A GPU then normalizes x in a separate launch.
  bool batch_invariant = false;
  // CPU: x may be rounded to bfloat16 before products with plain bfloat16 weights, like activations of 16-bit
  // models, and to int8, with a scale per 32 inputs of a row, before products with int8, int4, mxfp4 and
  // block formats. GPU: x may be rounded to fp8, with a scale per row or per 128 inputs of a row, before
  // products with fp8 weights. Faster.
  bool rounds_x = false;
  InputNorm norm = {};
  // out += x weight^T + bias, rounded once. GPU only.
  bool accumulate = false;
  // Norm that the next GEMM applies to `out`; deferred if the kernel supports it. Its buffers must not
  // overlap with x, or with `normalized` of this GEMM's norm.
  const InputNorm* next_norm = nullptr;
};
// Computes out with float32 accumulation. CPUs with AMX, or with rounds_x, may treat operands (or bf16 parts
// of them) below 2^-126, float32's subnormals, as 0. A row's result does not depend on the values of other
// rows. Returns true if next_norm is now deferred. Throws Error(kInvalidArgument) for mismatched shapes,
// dtypes and workspaces, and Error(kUnsupported) if the stream's device has no kernel for the problem.
bool linear(const LinearArgs& args, Stream& stream);
// Computes several products of the same x, without norms: q, k and v, or gate and up, if they are separate
// weights. On a CPU they are one job of the thread team. Results and errors are those of linear().
void linear(std::span<const LinearArgs> products, Stream& stream);
// Returns true if this machine's CPU rounds x when rounds_x is set: it has AVX-512-BF16 but not AMX.
bool cpu_rounds_x();
// Throws the errors of linear() without computing anything.
void check(const LinearArgs& args, const Stream& stream);

// Workspace bytes of the fastest kernels of a device for products of up to max_rows rows and max_in_features
// input features with the current num_threads(), for plain weights or weights of any other format. 0 if they
// need none.
size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, const Device& device,
                              WeightFormat format = WeightFormat::kPlain);

// First half of a gated MLP: out = silu(gate) * up with [gate | up] = x W^T + b.
struct GatedLinearArgs {
  TensorView x;                    // [num_rows, in_features]
  Weight weight;                   // [2 * intermediate, in_features]
  TensorView bias;                 // [2 * intermediate]; empty: none
  TensorView gate_up;              // [num_rows, 2 * intermediate]: scratch
  TensorView out;                  // [num_rows, intermediate]
  View<std::byte> workspace = {};  // as in LinearArgs
  bool batch_invariant = false;    // as in LinearArgs
  bool rounds_x = false;           // as in LinearArgs
  InputNorm norm = {};             // as in LinearArgs
};
// Dtypes, strides and errors are those of linear() and silu_mul(). On a GPU, a few rows need one launch.
void gated_linear(const GatedLinearArgs& args, Stream& stream);

// Per-head linear layers: each head has its own weight.

// x and out have last stride 1 and any other strides. The weight has stride 1 in one of its last two
// dimensions: it is a slice of a matrix, or is read transposed.
struct HeadLinearArgs {
  TensorView x;       // [num_tokens, num_heads, in_features]. CPU: f32; GPU: f32, f16, bf16
  TensorView weight;  // [num_heads, out_features, in_features]: f32, f16, bf16; on a GPU the dtype of x
  TensorView out;     // [num_tokens, num_heads, out_features]: dtype of x
  View<std::byte> workspace = {};  // as in LinearArgs
  bool batch_invariant = false;    // as in LinearArgs
};
// Computes out[t, h] = weight[h] x[t, h] with float32 accumulation. Throws Error(kInvalidArgument) for
// invalid shapes, strides and devices, and Error(kUnsupported) for dtypes.
void head_linear(const HeadLinearArgs& args, Stream& stream);
void check(const HeadLinearArgs& args, const Stream& stream);

}  // namespace attend::kernels

#pragma GCC visibility pop
