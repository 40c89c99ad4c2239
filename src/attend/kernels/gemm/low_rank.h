// Low-rank adapters of linear layers (LoRA, arXiv 2106.09685): out += scale * B (A x), with another adapter,
// or none, for each token.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/gemm/low_rank_arrays.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Change of some consecutive outputs of a linear layer. Views of f32, f16 or bf16, contiguous.
struct LowRankTerm {
  TensorView a;  // [in_features, rank]: A, transposed
  TensorView b;  // [rank, num_outputs]: B, transposed
  float scale = 1.0f;
  int64_t first_out = 0;

  int64_t rank() const { return a.shape[1]; }
};

// Terms of one adapter for a model, indexed by Linear::adapter_index. Layers that the adapter does not change
// have none.
struct LowRankAdapter {
  std::vector<std::vector<LowRankTerm>> layers;  // in host memory; empty on a GPU
  int64_t max_rank = 0;                          // largest sum of the ranks of a layer's terms
  // GPUs: table of the layers in device memory, and f32 numbers per token that a step needs as scratch.
  const void* table = nullptr;
  int64_t row_floats = 0;
};

// Copy of an adapter in the memory of a GPU.
struct DeviceAdapter {
  LowRankAdapter adapter;
  Tensor memory;
};
// Copies an adapter of host memory to a GPU, with values rounded to `dtype`, that of the activations: f32,
// f16 or bf16. Ranks are padded to multiples of 16. Synchronous. Throws Error(kOutOfMemory) if the GPU has
// too little memory.
DeviceAdapter copy_to(const LowRankAdapter& adapter, DType dtype, Device device);

// Consecutive tokens of a step with one adapter.
struct AdapterRun {
  int64_t first_token = 0, num_tokens = 0;
  const LowRankAdapter* adapter = nullptr;
};

// Products of one x that share a call.
inline constexpr int64_t kMaxLowRankProducts = 4;

// Returns the largest number of tokens of a segment for a step with this number of tokens with adapters:
// tokens of prompts share loads of A and B.
int low_rank_segment_tokens(int64_t num_tokens, bool in_graph);

// Adapters of a step. Tokens outside of the runs have none.
struct AdapterBatch {
  // CPUs.
  View<const AdapterRun> runs = {};  // ascending, without overlap
  // f32 [num_tokens, kMaxLowRankProducts * max_rank of any adapter]: scratch for A x. Its rows are the step's
  // tokens.
  TensorView products = {};
  // GPUs.
  LowRankArrays arrays = {};

  bool empty() const { return runs.empty() && arrays.header == nullptr; }
};
// Largest number of tokens in a run: longer ones are divided, so that threads share the work.
inline constexpr int64_t kMaxRunTokens = 32;

// Input of a linear layer. CPU: f32; GPU: the dtype of the adapters' copies.
struct LowRankInput {
  TensorView x;  // [num_tokens, in_features], last stride 1
  // GPUs: empty, or a deferred norm of x (InputNorm::deferred), which is applied to A x.
  InputNorm norm = {};
};
// Output of a linear layer to which the terms of the tokens' adapters are added.
struct LowRankProduct {
  int adapter_index = -1;  // -1: adapters do not change the layer
  TensorView out;          // [num_tokens, out_features], last stride 1; f32, on a GPU also the dtype of x
};
// The two halves of out += scale * B (A x): shrink_low_rank() computes A x, which the next call of
// expand_low_rank() with the same arguments multiplies by B and adds to each out. The layer's own product may
// run in between. At most kMaxLowRankProducts products; on a GPU one. Sums are f32, in the order of the
// inputs, then of the ranks, so a token's bits depend on its own x, out and adapter only. A GPU rounds A x to
// the dtype of x. Nothing is computed if no product is changed. Throw Error(kInvalidArgument) for mismatched
// shapes and dtypes.
void shrink_low_rank(const LowRankInput& input, View<const LowRankProduct> products,
                     const AdapterBatch& adapters, Stream& stream);
void expand_low_rank(const LowRankInput& input, View<const LowRankProduct> products,
                     const AdapterBatch& adapters, Stream& stream);

// expand_low_rank(), then out = silu(gate) * up with [gate | up] = product.out, whose contents are then
// undefined; with the bits of separate launches. Returns false without computing anything if the device has
// no kernel for this: a GPU has one for 16 bits and steps that list all of their tokens. Throws the errors of
// expand_low_rank() and silu_mul().
bool expand_low_rank_silu_mul(const LowRankInput& input, const LowRankProduct& product,
                              const AdapterBatch& adapters, const TensorView& out, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
