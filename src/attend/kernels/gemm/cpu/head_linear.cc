#include <algorithm>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/cpu/linear.h"

namespace attend::kernels::cpu {
namespace {

// Tokens per task. A task reads a head's weight once.
constexpr int64_t kTokensPerTask = 64;

}  // namespace

MultiplyTransposed multiply_transposed(Isa isa) {
  require_isa(isa);
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return multiply_transposed_avx512();
    if (isa == Isa::kAvx2) return multiply_transposed_avx2();
  }
  return multiply_transposed_portable();
}

void head_linear(const HeadLinearArgs& args, Isa isa) {
  const int64_t num_tokens = args.x.shape[0], num_heads = args.x.shape[1];
  const auto head_view = [](const TensorView& rows, int64_t head) { return rows.transpose(0, 1)[head]; };
  if (args.weight.strides[2] == 1) {
    for (int64_t head = 0; head < num_heads; ++head)
      linear({.x = head_view(args.x, head),
              .weight = args.weight[head],
              .bias = {},
              .out = head_view(args.out, head),
              .workspace = args.workspace,
              .batch_invariant = args.batch_invariant},
             isa);
    return;
  }
  const MultiplyTransposed multiply = multiply_transposed(isa);
  const int64_t num_runs = ceil_div(num_tokens, kTokensPerTask);
  parallel_for(num_heads * num_runs, [&](int64_t task, int) {
    const int64_t head = task / num_runs, first = task % num_runs * kTokensPerTask;
    const TensorView x = head_view(args.x, head)[first], out = head_view(args.out, head)[first];
    multiply({.x = x.as<const float>(),
              .x_stride = args.x.strides[0],
              .weight = args.weight[head].data,
              .weight_stride = args.weight.strides[2],
              .dtype = args.weight.dtype,
              .out = out.as<float>(),
              .out_stride = args.out.strides[0],
              .num_tokens = std::min(kTokensPerTask, num_tokens - first),
              .in_features = args.x.shape[2],
              .out_features = args.out.shape[2]});
  });
}

}  // namespace attend::kernels::cpu
