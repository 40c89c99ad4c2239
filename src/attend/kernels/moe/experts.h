// The gated MLPs of a mixture of experts: every token by those that it chose.
#pragma once

#include <span>

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct MoeShape {
  int64_t num_experts = 0, top_k = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of one expert
};

// What stands between the two products of an expert.
enum class ExpertActivation : uint8_t {
  kSilu,           // silu(gate) * up. Of gate_up the rows of gate come first, then those of up.
  kClampedSwiglu,  // (up + 1) gate / (1 + e^-(alpha gate)), gate at most limit, up within limit of 0. Rows of
                   // gate and up alternate (gpt-oss).
};
struct ExpertGate {
  ExpertActivation activation = ExpertActivation::kSilu;
  float limit = 0.0f, alpha = 0.0f;  // of kClampedSwiglu; above 0
};

// The weights of all experts of a layer, expert after expert: in one matrix, in one for each expert, or, of
// gate and up, in one for each of the two of each expert. A GPU takes one matrix, whose input_order, if it
// has one, is [num_experts, in_features]: gate and up of an expert have the same. Weights that are mapped
// from a file stay where they are. All of them have biases or none has.
struct ExpertWeights {
  std::span<const Linear> gate_up;  // [num_experts * (gate's + up's intermediate_size), hidden_size]
  std::span<const Linear> down;     // [num_experts * hidden_size, intermediate_size]
};

struct MoeExpertsArgs {
  MoeShape shape;
  TensorView x;  // [num_tokens, hidden_size], contiguous. CPU: f32; GPU: f32, f16, bf16
  TensorView
      experts;  // i32 [num_tokens, top_k]: as route() leaves them, each a token's once (not checked on a GPU)
  TensorView weights;  // f32 [num_tokens, top_k]
  // On a GPU plain weights are of the dtype of x. Beside mxfp4, elements of x in bf16, and of what lies
  // between the products, are below 2^64 (others give infinities or NaN); products of x, code and scale below
  // 2^-64 may lose bits, below 2^-87 all of them.
  ExpertWeights linears;
  ExpertGate gate = {};
  // The weight multiplies what an expert reads in place of what it gives (Llama 4).
  bool weights_scale_input = false;
  TensorView out;                  // as x; on a CPU it may be x
  bool accumulate = false;         // out += what is computed, rounded once. GPU only.
  View<std::byte> scratch = {};    // experts_scratch_bytes(), aligned to 64, of the stream's device
  View<std::byte> workspace = {};  // as of linear()
  // A token's bits do not depend on the other tokens of the call, nor on their number. Elsewhere they may on
  // a GPU depend on that number.
  bool batch_invariant = false;
};
// out = sum over the token's experts, in their order, of weight * (Wdown act(Wgate x, Wup x)), each product
// with its bias, summed in float32. Only weights of experts that a token chose are read. Throws
// Error(kInvalidArgument) for shapes and dtypes, Error(kUnsupported) for weights that a GPU does not take.
void moe_experts(const MoeExpertsArgs& args, Stream& stream);
void check(const MoeExpertsArgs& args, const Stream& stream);

size_t experts_scratch_bytes(const MoeShape& shape, int64_t num_tokens, DType dtype);

namespace reference {
// Scratch and workspace are not used.
void moe_experts(const MoeExpertsArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
