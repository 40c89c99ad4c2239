// Access to a Residual for the operations of fused/.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels {

// out = norm(x), of either kind. x, out: [num_tokens, hidden_size]; out may be x.
void apply_norm(const Norm& norm, const TensorView& x, const TensorView& out, Stream& stream);

class ResidualAccess {
 public:
  // Adds the pending addend, and returns the stream.
  static const TensorView& sum(Residual& residual);
  // Returns norm(sum), for a device with GEMMs that do not apply norms; sum itself without a norm. Valid
  // until the next operation.
  static TensorView normalized(Residual& residual, const Norm& norm, Stream& stream);
  // Input of a GEMM that may apply the norm itself. Norms that GEMMs do not apply are computed here.
  struct GemmInput {
    TensorView x;
    InputNorm norm;
  };
  static GemmInput gemm_input(Residual& residual, const Norm& norm, Stream& stream);
  static void prepare(Residual& residual, const Norm& norm, Stream& stream);
  static bool is_prepared(const Residual& residual, const Norm& norm) { return residual.prepared_ == norm; }
  static const TensorView& gathered(const Residual& residual) { return residual.memory_.gathered; }
  // Returns the memory for a product that is added to the sum later, on a CPU. Adds the previous pending
  // addend first.
  static TensorView leave_addend(Residual& residual);
  // Returns memory like sum() for an addend on a GPU; drops a deferred norm.
  static TensorView free_scratch(Residual& residual);
  // Returns the norm that a GEMM which adds to the sum may defer; null if none is expected or it cannot be
  // deferred.
  static const InputNorm* next_norm(Residual& residual);
  // GPUs: adds the sum of all ranks' x to the stream, and defers the expected norm. x: scratch or gathered().
  static void all_reduce_add(const TensorView& x, Residual& residual, const OpContext& context);
  // `deferred`: true if the GEMM deferred it.
  static void set_deferred(Residual& residual, bool deferred);
};

}  // namespace attend::kernels
