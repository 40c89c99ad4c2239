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
bool few_rows(const LinearArgs& args) {
  return args.x.shape[0] <= kMaxFewRows && args.x.dtype != DType::kF32 && args.x.shape[1] % 8 == 0 &&
         rows_aligned({&args.x, &args.weight});
}

void multiply_few_rows(const LinearArgs& args, Stream& stream) {
  launch_few_rows({.x = args.x.data,
                   .weight = args.weight.data,
                   .x_stride = args.x.strides[0],
                   .bias = device_vector(args.bias),
                   .out = args.out.data,
                   .out_stride = args.out.strides[0],
                   .num_rows = static_cast<int32_t>(args.x.shape[0]),
                   .in_features = static_cast<int32_t>(args.x.shape[1]),
                   .out_features = static_cast<int32_t>(args.weight.shape[0]),
                   .element = element_of(args.x.dtype),
                   .out_element = element_of(args.out.dtype)},
                  stream.handle);
}

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  if (args.weight.dtype != args.x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", args.weight, ": expected the dtype of x, ", args.x.dtype);
  if (args.out.num_elements() == 0) return;
  if (few_rows(args)) return multiply_few_rows(args, stream);
  if (!args.bias.empty()) fill_with_bias(args.bias, args.out, stream);
  matmul(args.x, args.weight, args.out, !args.bias.empty(), stream);
}

}  // namespace attend::kernels::cuda
