#include "attend/kernels/cuda/linear.h"

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/elementwise.h"
#include "attend/kernels/cuda/few_rows.h"
#include "attend/kernels/cuda/invariant_linear.h"
#include "attend/kernels/cuda/matmul.h"
#include "attend/kernels/cuda/view_params.h"

namespace attend::kernels::cuda {
namespace {

// out[i] (+)= bias.
void put_bias(const TensorView& bias, const TensorView& out, bool add, Stream& stream) {
  const int64_t num_columns = out.shape[1];
  const DeviceVector from = device_vector(bias);
  launch_copy_rows({.from = {const_cast<void*>(from.data), 0, 0, 1, from.element},
                    .out = device_rows(out),
                    .rows = nullptr,
                    .num_rows = static_cast<int32_t>(out.shape[0]),
                    .num_columns = static_cast<int32_t>(num_columns),
                    .aligned = num_columns % 8 == 0 && rows_aligned({&bias, &out}),
                    .add = add},
                   stream.handle);
}

void require_dtype_of_x(const TensorView& x, const TensorView& weight) {
  if (weight.dtype != x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", weight, ": expected the dtype of x, ", x.dtype);
}

// What is multiplied, once a norm has run that the product does not.
TensorView normed(const InputNorm& norm, const TensorView& x, Stream& stream) {
  if (norm.weight.empty()) return x;
  rms_norm(x, norm.weight, norm.eps, norm.normed, stream, /*weight_offset=*/0.0f);
  return norm.normed;
}

void multiply_few_rows(LinearArgs args, bool gated, Stream& stream) {
  if (!args.norm.weight.empty() && !norms_few_rows(args.norm, args.x)) {
    args.x = normed(args.norm, args.x, stream);
    args.norm = {};
  }
  const auto launch = args.x.dtype == DType::kBF16 ? launch_few_rows_bf16 : launch_few_rows_f16;
  launch(few_rows_params(args, gated), stream.handle);
}

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.out.num_elements() == 0) return;
  if (args.batch_invariant) {
    LinearArgs invariant = args;
    invariant.x = normed(args.norm, args.x, stream);
    return invariant_linear(invariant, stream);
  }
  if (takes_few_rows(args.x, args.weight, args.out)) return multiply_few_rows(args, /*gated=*/false, stream);
  const TensorView x = normed(args.norm, args.x, stream);
  if (!args.bias.empty()) put_bias(args.bias, args.out, /*add=*/args.accumulate, stream);
  matmul(x, args.weight, args.out, args.accumulate || !args.bias.empty(), stream);
}

bool gated_linear(const GatedLinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.batch_invariant || args.out.num_elements() == 0 || !takes_few_rows(args.x, args.weight, args.out))
    return false;
  multiply_few_rows(
      {.x = args.x, .weight = args.weight, .bias = args.bias, .out = args.out, .norm = args.norm},
      /*gated=*/true, stream);
  return true;
}

}  // namespace attend::kernels::cuda
