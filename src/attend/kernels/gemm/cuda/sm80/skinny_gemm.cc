#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.h"

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda::sm80 {

int max_skinny_rows() {
  return max_skinny_rows(current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

SkinnyGemmParams skinny_gemm_params(const LinearArgs& args, bool gated) {
  return {.x = args.x.data,
          .weight = args.weight.data.data,
          .x_stride = args.x.strides[0],
          .bias = device_vector(args.bias),
          .norm = args.norm.weight.data,
          .norm_element = args.norm.weight.empty() ? Element::kBF16 : to_element_type(args.norm.weight.dtype),
          .norm_eps = args.norm.eps,
          .out = args.out.data,
          .out_stride = args.out.strides[0],
          .num_rows = static_cast<int32_t>(args.x.shape[0]),
          .in_features = static_cast<int32_t>(args.x.shape[1]),
          .out_features = static_cast<int32_t>(args.out.shape[1]),
          .gated = gated,
          .accumulate = args.accumulate,
          .out_element = to_element_type(args.out.dtype)};
}

void launch_skinny_gemm(const SkinnyGemmParams& params, DType dtype, void* stream) {
  const auto launch = dtype == DType::kBF16 ? launch_skinny_gemm_bf16 : launch_skinny_gemm_f16;
  launch(params, stream);
}

SkinnyQuantizedParams skinny_quantized_params(const LinearArgs& args, bool gated) {
  return {.product = skinny_gemm_params(args, gated), .weight = quantized_weight(args.weight)};
}

void launch_skinny_quantized(const SkinnyQuantizedParams& params, DType dtype, void* stream) {
  const auto launch = dtype == DType::kBF16 ? launch_skinny_quantized_bf16 : launch_skinny_quantized_f16;
  launch(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
