#include "attend/kernels/cuda/invariant_linear.h"

#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/few_rows_kernel.h"
#include "attend/kernels/cuda/row_tiles_kernel.h"
#include "attend/kernels/cuda/view_params.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kGroup = 8;  // inputs, and features, that the tensor cores' kernels take together

RowTilesParams row_tiles_params(const LinearArgs& args) {
  return {.x = args.x.data,
          .weight = args.weight.data,
          .x_stride = args.x.strides[0],
          .bias = device_vector(args.bias),
          .out = args.out.data,
          .out_stride = args.out.strides[0],
          .num_rows = static_cast<int32_t>(args.x.shape[0]),
          .in_features = static_cast<int32_t>(args.x.shape[1]),
          .out_features = static_cast<int32_t>(args.out.shape[1]),
          .accumulate = args.accumulate,
          .out_element = element_of(args.out.dtype)};
}

// The same without the norm, which would round x otherwise than row tiles do.
FewRowsParams few_rows_params(const RowTilesParams& tiles) {
  return {.x = tiles.x,
          .weight = tiles.weight,
          .x_stride = tiles.x_stride,
          .bias = tiles.bias,
          .norm = nullptr,
          .norm_eps = 0.0f,
          .out = tiles.out,
          .out_stride = tiles.out_stride,
          .num_rows = tiles.num_rows,
          .in_features = tiles.in_features,
          .out_features = tiles.out_features,
          .gated = false,
          .accumulate = tiles.accumulate,
          .out_element = tiles.out_element};
}

}  // namespace

void invariant_linear(const LinearArgs& args, Stream& stream) {
  const RowTilesParams params = row_tiles_params(args);
  const DType dtype = args.x.dtype;
  const bool on_tensor_cores =
      dtype != DType::kF32 && params.in_features % kGroup == 0 && rows_aligned({&args.x, &args.weight});
  if (!on_tensor_cores) return launch_plain_product(params, element_of(dtype), stream.handle);
  const bool few = params.num_rows <= max_few_rows() && params.out_features % kGroup == 0;
  if (few && dtype == DType::kBF16) return launch_few_rows_bf16(few_rows_params(params), stream.handle);
  if (few) return launch_few_rows_f16(few_rows_params(params), stream.handle);
  if (dtype == DType::kBF16) return launch_row_tiles_bf16(params, stream.handle);
  launch_row_tiles_f16(params, stream.handle);
}

}  // namespace attend::kernels::cuda
