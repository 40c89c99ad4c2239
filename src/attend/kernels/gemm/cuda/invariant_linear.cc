#include "attend/kernels/gemm/cuda/invariant_linear.h"

#include "attend/kernels/common/cuda/device_rows.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/batch_invariant_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/few_rows.h"
#include "attend/kernels/gemm/cuda/sm90/row_tiles.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kGroup = 8;  // inputs, and features, that the tensor cores' kernels take together

BatchInvariantGemmParams row_tiles_params(const LinearArgs& args) {
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

}  // namespace

void invariant_linear(const LinearArgs& args, Stream& stream) {
  const DType dtype = args.x.dtype;
  const int64_t in_features = args.x.shape[1], out_features = args.out.shape[1];
  const bool on_tensor_cores =
      dtype != DType::kF32 && in_features % kGroup == 0 && rows_aligned({&args.x, &args.weight});
  if (!on_tensor_cores) return launch_naive_gemm(row_tiles_params(args), element_of(dtype), stream.handle);
  if (args.x.shape[0] <= max_skinny_rows() && out_features % kGroup == 0)
    return launch_few_rows(few_rows_params(args, /*gated=*/false), dtype, stream.handle);
  if (sm90::takes_row_tiles(args, stream)) return sm90::row_tiles(args, stream);
  const auto launch =
      dtype == DType::kBF16 ? launch_batch_invariant_gemm_bf16 : launch_batch_invariant_gemm_f16;
  launch(row_tiles_params(args), stream.handle);
}

}  // namespace attend::kernels::cuda
