#include "attend/kernels/cuda/linear.h"

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/few_rows_kernel.h"
#include "attend/kernels/cuda/matmul.h"
#include "attend/kernels/cuda/view_params.h"

namespace attend::kernels::cuda {
namespace {

// out[i] = bias, to be added to.
void fill_with_bias(const TensorView& bias, const TensorView& out, Stream& stream) {
  const int64_t num_columns = out.shape[1];
  const DeviceVector from = device_vector(bias);
  launch_copy_rows({.from = {const_cast<void*>(from.data), 0, 0, 1, from.element},
                    .out = device_rows(out),
                    .rows = nullptr,
                    .num_rows = static_cast<int32_t>(out.shape[0]),
                    .num_columns = static_cast<int32_t>(num_columns),
                    .aligned = num_columns % 8 == 0 && rows_aligned({&bias, &out})},
                   stream.handle);
}

// Whether the kernel for few rows takes these arguments; its sums are exact products added in float32, as
// cuBLASLt's.
bool few_rows(const TensorView& x, const TensorView& weight) {
  return x.shape[0] <= kMaxFewRows && x.dtype != DType::kF32 && x.shape[1] % 8 == 0 &&
         rows_aligned({&x, &weight});
}

void require_dtype_of_x(const TensorView& x, const TensorView& weight) {
  if (weight.dtype != x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", weight, ": expected the dtype of x, ", x.dtype);
}

void multiply_few_rows(const LinearArgs& args, bool gated, Stream& stream) {
  launch_few_rows({.x = args.x.data,
                   .weight = args.weight.data,
                   .x_stride = args.x.strides[0],
                   .bias = device_vector(args.bias),
                   .out = args.out.data,
                   .out_stride = args.out.strides[0],
                   .num_rows = static_cast<int32_t>(args.x.shape[0]),
                   .in_features = static_cast<int32_t>(args.x.shape[1]),
                   .out_features = static_cast<int32_t>(args.out.shape[1]),
                   .gated = gated,
                   .element = element_of(args.x.dtype),
                   .out_element = element_of(args.out.dtype)},
                  stream.handle);
}

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.out.num_elements() == 0) return;
  if (few_rows(args.x, args.weight)) return multiply_few_rows(args, /*gated=*/false, stream);
  if (!args.bias.empty()) fill_with_bias(args.bias, args.out, stream);
  matmul(args.x, args.weight, args.out, !args.bias.empty(), stream);
}

bool gated_linear(const GatedLinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.out.num_elements() == 0 || !few_rows(args.x, args.weight)) return false;
  multiply_few_rows({.x = args.x, .weight = args.weight, .bias = args.bias, .out = args.out}, /*gated=*/true,
                    stream);
  return true;
}

}  // namespace attend::kernels::cuda
