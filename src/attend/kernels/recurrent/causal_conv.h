// Depthwise causal convolution over the tokens of each request, with the last inputs as state.
#pragma once

#include <span>

#include "attend/kernels/recurrent/recurrent_batch.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Largest kernel, in taps.
inline constexpr int64_t kMaxConvKernel = 8;
// Largest number of inputs of one call.
inline constexpr size_t kMaxConvInputs = 4;

// Activations are f32 on the CPU, and all of one dtype on GPUs: f32, f16 or bf16.
struct CausalConvArgs {
  // Channels of the convolution, one input after another: each [num_tokens, groups, width], last stride 1.
  // Several groups are channels that are not adjacent in memory.
  std::span<const TensorView> inputs;
  TensorView weight;  // f32 [channels, kernel], contiguous; the last tap multiplies the token itself
  TensorView bias;    // f32 [channels]; empty: none
  bool silu = true;   // activation of the result
  // [num_slots, kernel - 1, channels] of the inputs' dtype, contiguous: the last inputs, oldest first.
  TensorView state;
  TensorView out;  // [num_tokens, channels], last stride 1
  RecurrentBatch batch;
};

// out[t][c] = act(bias[c] + sum over j of weight[c][j] * x[t - kernel + 1 + j][c]). Inputs before a request's
// first token are 0. Throws Error(kInvalidArgument) for other shapes and strides.
void causal_conv(const CausalConvArgs& args, Stream& stream);
void check(const CausalConvArgs& args, const Stream& stream);

namespace reference {
// Same in float64, one element after another, in host memory.
void causal_conv(const CausalConvArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
