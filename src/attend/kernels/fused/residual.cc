#include "attend/kernels/fused/residual.h"

#include "attend/base/error.h"
#include "attend/kernels/fused/residual_access.h"
#include "attend/kernels/norm_rope/norm.h"

namespace attend::kernels {

Residual::Memory Residual::Memory::first(int64_t num_tokens) const {
  const auto rows = [&](const TensorView& view) {
    return view.empty() ? view : view.slice(0, 0, num_tokens);
  };
  return {.sum = rows(sum), .scratch = rows(scratch), .gathered = rows(gathered), .squares = rows(squares)};
}

TensorView ResidualAccess::normed(Residual& residual, const Norm& norm, Stream& stream) {
  const Residual::Memory& memory = residual.memory_;
  if (residual.scratch_ == Residual::Scratch::kAddend)
    add_rms_norm(memory.scratch, memory.sum, norm.weight, norm.eps, memory.scratch, stream);
  else
    rms_norm(memory.sum, norm.weight, norm.eps, memory.scratch, stream);
  residual.scratch_ = Residual::Scratch::kFree;
  return memory.scratch;
}

InputNorm ResidualAccess::input_norm(Residual& residual, const Norm& norm) {
  ensure(residual.scratch_ != Residual::Scratch::kAddend,
         "a GEMM that norms, and a sum that is not there yet");
  InputNorm input{.weight = norm.weight,
                  .eps = norm.eps,
                  .normed = residual.memory_.scratch,
                  .squares = residual.memory_.squares};
  // Begun for one GEMM: those that norm by themselves may write scratch.
  if (residual.scratch_ == Residual::Scratch::kBegun)
    input.begun = residual.begun_.begun && residual.begun_.weight.data == norm.weight.data &&
                  residual.begun_.eps == norm.eps;
  residual.scratch_ = Residual::Scratch::kFree;
  return input;
}

TensorView ResidualAccess::leave_addend(Residual& residual) {
  ensure(residual.scratch_ != Residual::Scratch::kAddend, "two sums in a row that are left to a norm");
  residual.scratch_ = Residual::Scratch::kAddend;
  return residual.memory_.scratch;
}

InputNorm* ResidualAccess::begin_next(Residual& residual) {
  if (residual.next_.weight.empty() || residual.memory_.squares.empty()) return nullptr;
  residual.begun_ = {.weight = residual.next_.weight,
                     .eps = residual.next_.eps,
                     .normed = residual.memory_.scratch,
                     .squares = residual.memory_.squares};
  residual.next_ = {};
  residual.scratch_ = Residual::Scratch::kBegun;
  return &residual.begun_;
}

}  // namespace attend::kernels
