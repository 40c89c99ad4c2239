#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/fused/residual_access.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend::kernels {
namespace {

// sum += x, both f32 [num_tokens, hidden_size]: used if no norm adds the pending addend.
void add_on_host(const TensorView& x, const TensorView& sum) {
  const int64_t num_columns = sum.shape[1];
  parallel_for_rows(sum.shape[0], num_columns, [&](int64_t row) {
    const float* const from = x[row].as<float>();
    float* const to = sum[row].as<float>();
    for (int64_t i = 0; i < num_columns; ++i) to[i] += from[i];
  });
}

}  // namespace

Residual::Memory Residual::Memory::first(int64_t num_tokens) const {
  const auto rows = [&](const TensorView& view) {
    return view.empty() ? view : view.slice(0, 0, num_tokens);
  };
  return {.sum = rows(sum),
          .scratch = rows(scratch),
          .gathered = rows(gathered),
          .partial_squares = rows(partial_squares)};
}

int64_t Residual::num_partial_squares(int64_t hidden_size, Device device) {
  return device.type == DeviceType::kCuda ? hidden_size / kPartialSquaresWidth : 0;
}

void apply_norm(const Norm& norm, const TensorView& x, const TensorView& out, Stream& stream) {
  if (norm.kind == NormKind::kLayer)
    layer_norm(x, norm.weight, norm.bias, norm.eps, out, stream);
  else
    rms_norm(x, norm.weight, norm.eps, out, stream);
}

const TensorView& ResidualAccess::sum(Residual& residual) {
  // A deferred norm remains: its scratch is a copy of the sum, which does not change here.
  if (residual.scratch_ == Residual::Scratch::kAddend) {
    add_on_host(residual.memory_.scratch, residual.memory_.sum);
    residual.scratch_ = Residual::Scratch::kFree;
  }
  return residual.memory_.sum;
}

TensorView ResidualAccess::normalized(Residual& residual, const Norm& norm, Stream& stream) {
  const Residual::Memory& memory = residual.memory_;
  if (residual.prepared_ == norm) return memory.gathered;
  if (norm.empty()) return sum(residual);
  if (residual.scratch_ == Residual::Scratch::kAddend && norm.kind == NormKind::kRms)
    add_rms_norm(memory.scratch, memory.sum, norm.weight, norm.eps, memory.scratch, stream);
  else
    apply_norm(norm, sum(residual), memory.scratch, stream);
  residual.scratch_ = Residual::Scratch::kFree;
  return memory.scratch;
}

void ResidualAccess::prepare(Residual& residual, const Norm& norm, Stream& stream) {
  const Residual::Memory& memory = residual.memory_;
  apply_norm(norm, sum(residual), memory.gathered, stream);
  residual.prepared_ = norm;
}

ResidualAccess::GemmInput ResidualAccess::gemm_input(Residual& residual, const Norm& norm, Stream& stream) {
  ensure(residual.scratch_ != Residual::Scratch::kAddend,
         "residual: a GEMM with a norm cannot read a sum with a pending addend");
  if (residual.prepared_ == norm || norm.kind != NormKind::kRms)
    return {.x = normalized(residual, norm, stream), .norm = {}};
  InputNorm input{.weight = norm.weight,
                  .eps = norm.eps,
                  .normalized = residual.memory_.scratch,
                  .partial_squares = residual.memory_.partial_squares};
  // A deferred norm serves one GEMM: kernels that normalize x themselves may overwrite the scratch.
  if (residual.scratch_ == Residual::Scratch::kDeferred)
    input.deferred = residual.deferred_.weight.data == norm.weight.data && residual.deferred_.eps == norm.eps;
  residual.scratch_ = Residual::Scratch::kFree;
  return {.x = residual.memory_.sum, .norm = input};
}

TensorView ResidualAccess::leave_addend(Residual& residual) {
  sum(residual);
  residual.scratch_ = Residual::Scratch::kAddend;
  return residual.memory_.scratch;
}

TensorView ResidualAccess::free_scratch(Residual& residual) {
  ensure(residual.scratch_ != Residual::Scratch::kAddend, "residual: the scratch holds a pending addend");
  residual.scratch_ = Residual::Scratch::kFree;
  return residual.memory_.scratch;
}

const InputNorm* ResidualAccess::next_norm(Residual& residual) {
  if (residual.next_.empty() || residual.next_.kind != NormKind::kRms ||
      residual.memory_.partial_squares.empty())
    return nullptr;
  residual.deferred_ = {.weight = residual.next_.weight,
                        .eps = residual.next_.eps,
                        .normalized = residual.memory_.scratch,
                        .partial_squares = residual.memory_.partial_squares};
  residual.next_ = {};
  return &residual.deferred_;
}

void ResidualAccess::all_reduce_add(const TensorView& x, Residual& residual, const OpContext& context) {
  const bool defers = !context.batch_invariant && x.shape[1] % kPartialSquaresWidth == 0;
  const InputNorm* const next = defers ? next_norm(residual) : nullptr;
  DeferredScale scale;
  if (next != nullptr)
    scale = {.weight = next->weight, .scaled = next->normalized, .partial_squares = next->partial_squares};
  context.ranks->all_reduce_add(x, residual.sum(), scale, context.stream);
  set_deferred(residual, next != nullptr);
}

void ResidualAccess::set_deferred(Residual& residual, bool deferred) {
  residual.scratch_ = deferred ? Residual::Scratch::kDeferred : Residual::Scratch::kFree;
}

void add_rows(Residual& residual, int64_t first, const TensorView& x, const OpContext& context) {
  require(x.rank == 2 && first >= 0 && first + x.shape[0] <= residual.num_tokens() &&
              x.shape[1] == residual.sum().shape[1] && x.dtype == residual.sum().dtype,
          "add_rows: ", x, " from token ", first, " of ", residual.sum());
  const auto rows = [&] { return residual.sum().slice(0, first, first + x.shape[0]); };
  if (const OnGpu gpu(context.stream); gpu) {
    require_activation_on(context.stream, "x", x);
    ResidualAccess::free_scratch(residual);  // a deferred norm is that of the sum without x
    return cuda::add_rows(x, rows(), context.stream);
  }
  ResidualAccess::sum(residual);  // adds the pending addend
  add_on_host(x, rows());
}

}  // namespace attend::kernels
