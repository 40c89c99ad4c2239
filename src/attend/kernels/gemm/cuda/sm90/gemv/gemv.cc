#include "attend/kernels/gemm/cuda/sm90/gemv/gemv.h"

#include "attend/kernels/common/cuda/view_params.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {

void gemv(const LinearArgs& args, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const GemvParams params{.x = args.x.data,
                          .weight = args.weight.data.data,
                          .bias = device_vector(args.bias),
                          .out = args.out.data,
                          .in_features = static_cast<int32_t>(args.x.shape[1]),
                          .out_features = static_cast<int32_t>(args.out.shape[1]),
                          .accumulate = args.accumulate};
  const auto launch = args.x.dtype == DType::kBF16 ? launch_gemv_bf16 : launch_gemv_f16;
  launch(params, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
