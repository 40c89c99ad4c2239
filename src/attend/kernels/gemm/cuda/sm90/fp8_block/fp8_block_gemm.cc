#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"

#include "attend/base/math.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {

void fp8_block_gemm(const Fp8BlockRows& x, const Weight& weight, const TensorView& out, bool accumulate,
                    Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const int num_sms = gpu_facts(stream.device).num_sms;
  const int64_t num_rows = x.codes.shape[0], out_features = weight.out_features();
  const int64_t num_out_tiles = ceil_div<int64_t>(out_features, kFp8TileOuts);
  // Tall tiles read less, and are used if they keep every SM busy.
  constexpr int kTall = 256, kLow = 128;
  const int tile_rows = ceil_div<int64_t>(num_rows, kTall) * num_out_tiles >= num_sms ? kTall : kLow;
  const int64_t group_tiles =
      weight.group_outs >= out_features ? num_out_tiles : weight.group_outs / kFp8TileOuts;
  const Fp8BlockGemmParams params{
      .weight = map_rows(weight.data, kFp8TileOuts),
      .x = map_rows(x.codes, tile_rows / 2),
      .x_scales = x.scales,
      .x_scale_stride = static_cast<int32_t>(x.stride),
      .weight_scales = weight.scales.as<const float>(),
      .group_tiles = static_cast<int32_t>(group_tiles),
      .out = out.data,
      .out_stride = out.strides[0],
      .num_rows = static_cast<int32_t>(num_rows),
      .out_features = static_cast<int32_t>(out_features),
      .num_out_tiles = static_cast<int32_t>(num_out_tiles),
      .num_k_blocks = static_cast<int32_t>(ceil_div<int64_t>(x.codes.shape[1], kFp8BlockInputs)),
      .accumulate = accumulate};
  const auto launch = out.dtype == DType::kBF16 ? launch_fp8_block_gemm_bf16 : launch_fp8_block_gemm_f16;
  launch(params, tile_rows, num_sms, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
