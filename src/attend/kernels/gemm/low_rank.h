// Low-rank adapters of linear layers (LoRA, arXiv 2106.09685): out += scale * B (A x), with another adapter,
// or none, for each token.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

inline constexpr int kMaxAdapterRank = 256;

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
  std::vector<std::vector<LowRankTerm>> layers;
  int64_t max_rank = 0;  // largest sum of the ranks of a layer's terms
};

// Consecutive tokens of a step with one adapter.
struct AdapterRun {
  int64_t first_token = 0, num_tokens = 0;
  const LowRankAdapter* adapter = nullptr;
};

// Products of one x that share a call of add_low_rank().
inline constexpr int64_t kMaxLowRankProducts = 4;

// Adapters of a step. Tokens outside of the runs have none.
struct AdapterBatch {
  View<const AdapterRun> runs = {};  // ascending, without overlap
  // f32 [num_tokens, kMaxLowRankProducts * max_rank of any adapter]: scratch for A x. Its rows are the step's
  // tokens.
  TensorView products = {};

  bool empty() const { return runs.empty(); }
};
// Largest number of tokens in a run: longer ones are divided, so that threads share the work.
inline constexpr int64_t kMaxRunTokens = 32;

// Output of a linear layer to which the terms of the tokens' adapters are added.
struct LowRankProduct {
  int adapter_index = -1;  // -1: adapters do not change the layer
  TensorView out;          // f32 [num_tokens, out_features], last stride 1
};
// Adds the terms of each layer to its output. x: f32 [num_tokens, in_features], last stride 1; products: at
// most kMaxLowRankProducts. Sums are f32, in the order of the inputs, then of the ranks, so a token's bits
// depend on its own x, out and adapter only. CPUs only: throws Error(kUnsupported) on a GPU. Throws
// Error(kInvalidArgument) for mismatched shapes and dtypes.
void add_low_rank(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters,
                  Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
