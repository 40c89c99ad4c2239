#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"

#include "attend/base/math.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {

void gated_mlp_gemm(const LinearArgs& args, Stream& stream) {
  gated_mlp_gemm(
      args,
      gated_mlp_shape_for(args.weight.out_features(), args.x.shape[0], gpu_facts(stream.device).num_sms),
      stream);
}

void gated_mlp_gemm(const LinearArgs& args, const GatedMlpGemmShape& shape, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const bool share_weights = multicasts_weights(args.x.shape[0]);
  const GatedMlpGemmParams params{
      .weight = map_row_pairs(args.weight.data, /*gated=*/true,
                              share_weights ? shape.tile_pairs / kGatedMlpClusterSize : shape.tile_pairs),
      .x = map_rows(args.x, share_weights ? kGatedMlpRows : kGatedMlpRows / kGatedMlpClusterSize),
      .bias = device_vector(args.bias),
      .out = args.out.data,
      .out_stride = args.out.strides[0],
      .num_rows = static_cast<int32_t>(args.x.shape[0]),
      .out_features = static_cast<int32_t>(args.out.shape[1]),
      .num_tiles =
          static_cast<int32_t>(ceil_div<int64_t>(args.weight.out_features(), shape.tile_pairs * kPairRows)),
      .num_k_blocks = static_cast<int32_t>(ceil_div<int64_t>(args.x.shape[1], kGatedMlpBlockK)),
      .multicasts_weights = share_weights};
  const auto launch = args.x.dtype == DType::kBF16 ? launch_gated_mlp_gemm_bf16 : launch_gated_mlp_gemm_f16;
  launch(params, shape, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
