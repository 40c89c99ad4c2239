// Residual: the stream that the modules of a model read, normalized, and add to.
#pragma once

#include <span>

#include "attend/kernels/gemm/linear.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// RMSNorm, as rms_norm() computes it.
struct Norm {
  TensorView weight = {};  // [hidden_size]; empty: none, the stream is read as it is
  float eps = 1e-6f;
};

// LayerNorm, as layer_norm() computes it.
struct LayerNorm {
  TensorView weight = {}, bias = {};  // [hidden_size]
  float eps = 1e-12f;
};

// What the operations of a model have beside their operands.
struct OpContext {
  Stream& stream;
  View<std::byte> workspace = {};  // linear_workspace_bytes() of the stream's device, or none
  bool batch_invariant = false;    // as of LinearArgs
  bool rounds_x = false;           // as of LinearArgs
};

// A dense layer whose weight may be in parts: their out_features follow one another. Weights that are mapped
// from a file stay where they are, so q, k and v of a layer are three parts on a CPU, and one on a GPU.
using LinearParts = std::span<const Linear>;

// The residual stream of one step, and what kernels have started on it: a sum that the next norm will take
// in, or the partial sums of squares of a deferred norm that the next GEMM will finish. Which of these there
// is depends on the device and the kernels; who uses the operations of fused/ need not know. Cheap; made anew
// for every step.
class Residual {
 public:
  // Memory of the caller's, overwritten. Rows are tokens.
  struct Memory {
    TensorView sum;       // [num_tokens, hidden_size]: the stream itself; the embedding is written there
    TensorView scratch;   // as sum
    TensorView gathered;  // as sum: for operations on some of the rows
    TensorView partial_squares =
        {};  // f32 [num_tokens, hidden_size / kPartialSquaresWidth]; GPUs; empty: no norm is deferred

    Memory first(int64_t num_tokens) const;
  };

  // Partial sums of squares of one token: columns of Memory::partial_squares. 0 where no GEMM of the device
  // defers a norm.
  static int64_t num_partial_squares(int64_t hidden_size, Device device);

  explicit Residual(const Memory& memory) : memory_(memory) {}

  const TensorView& sum() const { return memory_.sum; }
  int64_t num_tokens() const { return memory_.sum.shape[0]; }

  // Which norm reads the stream after the next linear_add(): a hint that lets its kernel defer that norm.
  // Another norm may read it nevertheless.
  void expect(const Norm& next) { next_ = next; }

 private:
  friend class ResidualAccess;

  // What `scratch` holds.
  enum class Scratch : uint8_t {
    kFree,
    kAddend,    // still to be added to sum
    kDeferred,  // of deferred_: sum times the norm's weight
  };

  Memory memory_;
  Norm next_ = {};
  Scratch scratch_ = Scratch::kFree;
  InputNorm deferred_ = {};
};

}  // namespace attend::kernels
#pragma GCC visibility pop
