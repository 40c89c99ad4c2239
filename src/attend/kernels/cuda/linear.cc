#include "attend/kernels/cuda/linear.h"

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/matmul.h"

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

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  if (args.weight.dtype != args.x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", args.weight, ": expected the dtype of x, ", args.x.dtype);
  if (args.out.num_elements() == 0) return;
  if (!args.bias.empty()) fill_with_bias(args.bias, args.out, stream);
  matmul(args.x, args.weight, args.out, !args.bias.empty(), stream);
}

}  // namespace attend::kernels::cuda
