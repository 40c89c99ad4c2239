// What the operations of fused/ do to a Residual.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels {

class ResidualAccess {
 public:
  // norm(sum), for a device whose GEMMs do not norm; sum itself when there is no norm. Holds until the next
  // operation.
  static TensorView normalized(Residual& residual, const Norm& norm, Stream& stream);
  // The same as an input of a GEMM that may norm by itself; x is residual.sum().
  static InputNorm input_norm(Residual& residual, const Norm& norm);
  static const TensorView& gathered(const Residual& residual) { return residual.memory_.gathered; }
  // Where a product may be left, on a CPU, to be added to the sum later. Adds the one that was left before.
  static TensorView leave_addend(Residual& residual);
  // Memory like sum() for what is to be added on a GPU; a norm that was deferred is forgotten.
  static TensorView free_scratch(Residual& residual);
  // The norm that a GEMM may defer which adds to the sum; null: nobody expects one, or it can not be
  // deferred.
  static const InputNorm* next_norm(Residual& residual);
  // Whether the GEMM did.
  static void set_deferred(Residual& residual, bool deferred);
};

}  // namespace attend::kernels
