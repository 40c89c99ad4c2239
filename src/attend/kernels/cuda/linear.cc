#include "attend/kernels/cuda/linear.h"

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/elementwise.h"
#include "attend/kernels/cuda/few_rows_kernel.h"
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

// Whether the kernel for few rows takes these arguments; its sums are exact products added in float32, as
// cuBLASLt's. Of many rows x weighs as much as the features that a CTA takes at once, so layers of many
// features (heads) are left to cuBLASLt.
bool few_rows(const TensorView& x, const TensorView& weight, const TensorView& out) {
  constexpr int64_t kMostFeatures = 32768;
  return x.shape[0] <= max_few_rows() && (x.shape[0] <= kMaxRowsAnywhere || out.shape[1] <= kMostFeatures) &&
         x.dtype != DType::kF32 && x.shape[1] % 8 == 0 && out.shape[1] % 8 == 0 &&
         rows_aligned({&x, &weight});
}

void require_dtype_of_x(const TensorView& x, const TensorView& weight) {
  if (weight.dtype != x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", weight, ": expected the dtype of x, ", x.dtype);
}

// Whether the kernel for few rows norms x as well. The range of f16 is too small for a product of x and the
// norm's weight before it is scaled.
bool norms_few_rows(const InputNorm& norm, const TensorView& x) {
  return x.dtype == DType::kBF16 && norm.weight.dtype == DType::kBF16 && rows_aligned({&norm.weight});
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
  launch({.x = args.x.data,
          .weight = args.weight.data,
          .x_stride = args.x.strides[0],
          .bias = device_vector(args.bias),
          .norm = args.norm.weight.data,
          .norm_eps = args.norm.eps,
          .out = args.out.data,
          .out_stride = args.out.strides[0],
          .num_rows = static_cast<int32_t>(args.x.shape[0]),
          .in_features = static_cast<int32_t>(args.x.shape[1]),
          .out_features = static_cast<int32_t>(args.out.shape[1]),
          .gated = gated,
          .accumulate = args.accumulate,
          .out_element = element_of(args.out.dtype)},
         stream.handle);
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
  if (few_rows(args.x, args.weight, args.out)) return multiply_few_rows(args, /*gated=*/false, stream);
  const TensorView x = normed(args.norm, args.x, stream);
  if (!args.bias.empty()) put_bias(args.bias, args.out, /*add=*/args.accumulate, stream);
  matmul(x, args.weight, args.out, args.accumulate || !args.bias.empty(), stream);
}

bool gated_linear(const GatedLinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.batch_invariant || args.out.num_elements() == 0 || !few_rows(args.x, args.weight, args.out))
    return false;
  multiply_few_rows(
      {.x = args.x, .weight = args.weight, .bias = args.bias, .out = args.out, .norm = args.norm},
      /*gated=*/true, stream);
  return true;
}

}  // namespace attend::kernels::cuda
