#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels {

void check(const HeadLinearArgs& args, const Stream& stream) {
  require_rank("x", args.x, 3);
  require_rank("weight", args.weight, 3);
  const int64_t num_tokens = args.x.shape[0], num_heads = args.x.shape[1];
  require_shape("weight", args.weight, {num_heads, args.weight.shape[1], args.x.shape[2]});
  require_shape("out", args.out, {num_tokens, num_heads, args.weight.shape[1]});
  require_activation_on(stream, "x", args.x);
  require_activation_on(stream, "out", args.out);
  require_dtype("out", args.out, args.x.dtype);
  require_on(stream, "weight", args.weight);
  const DType dtype = args.weight.dtype;
  const bool on_gpu = stream.device.type == DeviceType::kCuda;
  if (on_gpu ? dtype != args.x.dtype : dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16)
    fail(ErrorCode::kUnsupported, "weight ", args.weight, ": expected float32, float16 or bfloat16",
         on_gpu ? ", the dtype of x" : "");
  require(args.weight.strides[1] == 1 || args.weight.strides[2] == 1, "weight ", args.weight,
          " with strides ", args.weight.strides[1], " and ", args.weight.strides[2],
          ": expected one of them to be 1");
}

void head_linear(const HeadLinearArgs& args, Stream& stream) {
  check(args, stream);
  if (args.out.num_elements() == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::head_linear(args, stream);
  cpu::head_linear(args, cpu::detect_isa());
}

}  // namespace attend::kernels
