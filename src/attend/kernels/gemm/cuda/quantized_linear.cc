#include <algorithm>

#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/dequantize_weight_kernel.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/quantized_workspace.h"
#include "attend/kernels/gemm/cuda/sm80/quantized_gemm_kernel.h"

namespace attend::kernels::cuda {
namespace {

sm80::QuantizedGemmParams quantized_params(const LinearArgs& args) {
  return {.x = args.x.data,
          .x_stride = args.x.strides[0],
          .weight = quantized_weight(args.weight),
          .bias = device_vector(args.bias),
          .out = args.out.data,
          .out_stride = args.out.strides[0],
          .num_rows = static_cast<int32_t>(args.x.shape[0]),
          .out_features = static_cast<int32_t>(args.out.shape[1]),
          .accumulate = args.accumulate,
          .out_element = to_element_type(args.out.dtype)};
}

void multiply_quantized(const LinearArgs& args, Stream& stream) {
  const auto launch =
      args.x.dtype == DType::kBF16 ? sm80::launch_quantized_gemm_bf16 : sm80::launch_quantized_gemm_f16;
  launch(quantized_params(args), stream.handle);
}

}  // namespace

void quantized_linear(const LinearArgs& args, Stream& stream) {
  if (args.weight.input_order.empty()) return multiply_quantized(args, stream);
  const int64_t num_rows = args.x.shape[0], in_features = args.x.shape[1];
  LinearArgs part = args;
  part.weight.input_order = {};
  for (int64_t begin = 0; begin < num_rows; begin += sm80::kLargeQuantizedRows) {
    const int64_t end = std::min<int64_t>(begin + sm80::kLargeQuantizedRows, num_rows);
    const TensorView x = args.x.slice(0, begin, end);
    part.x =
        TensorView::contiguous(args.workspace.data(), x.dtype, {end - begin, in_features}, stream.device);
    part.out = args.out.slice(0, begin, end);
    launch_gather_inputs({.x = x.data,
                          .x_stride = x.strides[0],
                          .order = args.weight.input_order.as<const int32_t>(),
                          .to = part.x.data,
                          .num_rows = static_cast<int32_t>(end - begin),
                          .in_features = static_cast<int32_t>(in_features)},
                         stream.handle);
    multiply_quantized(part, stream);
  }
}

void dequantize_then_linear(const LinearArgs& args, Stream& stream) {
  const int64_t in_features = args.x.shape[1], out_features = args.out.shape[1];
  const QuantizedWeight weight = quantized_weight(args.weight);
  for (int64_t begin = 0; begin < out_features; begin += kDequantizedOuts) {
    const int64_t count = std::min(kDequantizedOuts, out_features - begin);
    const TensorView elements =
        TensorView::contiguous(args.workspace.data(), args.x.dtype, {count, in_features}, stream.device);
    launch_dequantize_weight({.weight = weight,
                              .to = elements.data,
                              .first_row = static_cast<int32_t>(begin),
                              .num_rows = static_cast<int32_t>(count),
                              .element = to_element_type(args.x.dtype)},
                             stream.handle);
    cuda::linear({.x = args.x,
                  .weight = elements,
                  .bias = args.bias.empty() ? TensorView{} : args.bias.slice(0, begin, begin + count),
                  .out = args.out.slice(1, begin, begin + count),
                  .accumulate = args.accumulate},
                 stream);
  }
}

}  // namespace attend::kernels::cuda
