// Residual: the residual stream, which the modules of a model read normalized and add to.
#pragma once

#include <span>

#include "attend/kernels/gemm/linear.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// RMSNorm, as computed by rms_norm().
struct Norm {
  TensorView weight = {};  // [hidden_size]; empty: no norm
  float eps = 1e-6f;
};

// LayerNorm, as computed by layer_norm().
struct LayerNorm {
  TensorView weight = {}, bias = {};  // [hidden_size]
  float eps = 1e-12f;
};

// Context of a model's operations, in addition to their operands.
struct OpContext {
  Stream& stream;
  View<std::byte> workspace = {};  // linear_workspace_bytes() bytes on the stream's device, or empty
  bool batch_invariant = false;    // as in LinearArgs
  bool rounds_x = false;           // as in LinearArgs
};

// Linear layer with a weight in one or several parts, with their out_features concatenated. Weights that are
// mapped from a file are not copied, so q, k and v of a layer are three parts on a CPU, and one on a GPU.
using LinearParts = std::span<const Linear>;

// Residual stream of one step with its pending work: an addend that the next norm will add, or the partial
// sums of squares of a deferred norm that the next GEMM will finish. The kind of pending work depends on the
// device and the kernels; callers of the operations of fused/ do not depend on it. Cheap to construct;
// created for every step.
class Residual {
 public:
  // Memory of the caller, overwritten. Rows are tokens.
  struct Memory {
    TensorView sum;       // [num_tokens, hidden_size]: the stream itself; the embedding is written here
    TensorView scratch;   // same shape as sum
    TensorView gathered;  // same shape as sum: for operations on some of the rows
    // f32 [num_tokens, hidden_size / kPartialSquaresWidth]; GPUs; empty: norms are not deferred.
    TensorView partial_squares = {};

    Memory first(int64_t num_tokens) const;
  };

  // Returns the partial sums of squares per token, the columns of Memory::partial_squares. 0 if no GEMM of
  // the device defers a norm.
  static int64_t num_partial_squares(int64_t hidden_size, Device device);

  explicit Residual(const Memory& memory) : memory_(memory) {}

  const TensorView& sum() const { return memory_.sum; }
  int64_t num_tokens() const { return memory_.sum.shape[0]; }

  // Sets the norm that reads the stream after the next linear_add(): a hint that allows its kernel to defer
  // that norm. Another norm may read the stream nevertheless.
  void expect(const Norm& next) { next_ = next; }

 private:
  friend class ResidualAccess;

  // Contents of `scratch`.
  enum class Scratch : uint8_t {
    kFree,
    kAddend,    // addend that is not yet added to sum
    kDeferred,  // sum times the weight of deferred_
  };

  Memory memory_;
  Norm next_ = {};
  Scratch scratch_ = Scratch::kFree;
  InputNorm deferred_ = {};
};

}  // namespace attend::kernels
#pragma GCC visibility pop
