#include "attend/kernels/gemm/cuda/head_linear.h"

#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/head_linear_kernel.h"

namespace attend::kernels::cuda {

void head_linear(const HeadLinearArgs& args, Stream& stream) {
  launch_head_linear({.x = token_rows(args.x),
                      .weight = args.weight.data,
                      .weight_head_stride = args.weight.strides[0],
                      .weight_out_stride = args.weight.strides[1],
                      .weight_in_stride = args.weight.strides[2],
                      .out = out_rows(args.out),
                      .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                      .num_heads = static_cast<int32_t>(args.x.shape[1]),
                      .in_features = static_cast<int32_t>(args.x.shape[2]),
                      .out_features = static_cast<int32_t>(args.out.shape[2]),
                      .element = element_of(args.x.dtype)},
                     stream.handle);
}

}  // namespace attend::kernels::cuda
