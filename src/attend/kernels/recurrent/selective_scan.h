// Selective scan with a scalar decay per head (Mamba-2, arXiv 2405.21060), and the gated norm of its output.
#pragma once

#include <limits>

#include "attend/kernels/recurrent/recurrent_batch.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Activations are f32 on the CPU, and all of one dtype on GPUs: f32, f16 or bf16. Group j of b and c serves
// the heads j r to j r + r - 1, with r = num_heads / num_groups.
struct SelectiveScanArgs {
  TensorView x;                  // [num_tokens, num_heads, head_dim], last stride 1
  TensorView b, c;               // [num_tokens, num_groups, state_dim], last stride 1
  TensorView dt;                 // [num_tokens, num_heads], last stride 1: steps before their softplus
  TensorView a_log, d, dt_bias;  // f32 [num_heads], contiguous
  // Bounds of the steps after the softplus.
  float min_step = 0.0f, max_step = std::numeric_limits<float>::infinity();
  TensorView state;  // f32 [num_slots, num_heads, head_dim, state_dim], contiguous
  TensorView out;    // [num_tokens, num_heads, head_dim], last stride 1
  RecurrentBatch batch;
};

// For each token and head: step = softplus(dt + dt_bias), bounded;
//   h = exp(-exp(a_log) step) h + step x b^T;  out = h c + d x
// On the CPU and with batch_invariant, every token is a step of this recurrence, and has the same bits in any
// batch and any division into steps.
//
// Otherwise, GPUs compute requests with more than 16 new tokens in chunks of 64, if activations are f16 or
// bf16, state_dim is 64, 128 or 256, and head_dim is a multiple of 8. Products have operands of the
// activations' dtype there; states and sums are f32. Chunks start at multiples of 64 of a request's
// positions, so the division of a prompt at such positions does not change any bit.
//
// Throws Error(kInvalidArgument) for other shapes and strides.
void selective_scan(const SelectiveScanArgs& args, Stream& stream);
void check(const SelectiveScanArgs& args, const Stream& stream);

// Order of a norm and its gate.
enum class GateOrder : uint8_t {
  kGateFirst,  // rms_norm(x * silu(gate))
  kNormFirst,  // rms_norm(x) * silu(gate)
  kGateOnly,   // x * silu(gate)
};

struct GroupedGatedNormArgs {
  TensorView x;            // [num_tokens, features], last stride 1; changed in place
  TensorView gate;         // [num_tokens, features], last stride 1
  TensorView weight;       // [features]: f32, f16 or bf16; empty with kGateOnly
  int64_t num_groups = 1;  // divides the features
  float eps = 1e-6f;
  GateOrder order = GateOrder::kGateFirst;
};
// Applies norm and gate in this order, separately for each group of adjacent features. Throws the errors of
// selective_scan().
void grouped_gated_norm(const GroupedGatedNormArgs& args, Stream& stream);

namespace reference {
// Same in float64, one token after another, in host memory.
void selective_scan(const SelectiveScanArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
