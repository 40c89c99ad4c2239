#include <algorithm>
#include <cstdint>
#include <iterator>

#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/recurrent/cuda/common/causal_conv_kernel.h"
#include "attend/kernels/recurrent/cuda/recurrent.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {
namespace {

// Returns true if each access of 16 bytes of channels is aligned in all tensors and within one group.
bool aligned(const CausalConvArgs& args) {
  const auto element_bytes = static_cast<int64_t>(size_of(args.out.dtype));
  return args.out.shape[1] * element_bytes % 16 == 0 && rows_aligned({&args.out, &args.state, &args.bias}) &&
         reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0 &&
         std::ranges::all_of(args.inputs, [&](const TensorView& input) {
           return input.shape[2] * element_bytes % 16 == 0 && rows_aligned({&input});
         });
}

}  // namespace

CausalConvParams causal_conv_params(const CausalConvArgs& args) {
  static_assert(std::size(CausalConvParams{}.inputs) == kMaxConvInputs);
  CausalConvParams params{.inputs = {},
                          .weight = args.weight.as<const float>(),
                          .bias = args.bias.empty() ? nullptr : args.bias.as<const float>(),
                          .state = args.state.data,
                          .out = args.out.data,
                          .out_stride = args.out.strides[0],
                          .batch = step_batch(args.batch, args.out.shape[0]),
                          .num_channels = static_cast<int32_t>(args.out.shape[1]),
                          .num_taps = static_cast<int32_t>(args.weight.shape[1]),
                          .element = to_element_type(args.out.dtype),
                          .silu = args.silu,
                          .aligned = aligned(args)};
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const TensorView& input = args.inputs[i];
    require_dtype("inputs", input, args.out.dtype);
    params.inputs[i] = {.data = input.data,
                        .token_stride = input.strides[0],
                        .group_stride = input.strides[1],
                        .width = static_cast<int32_t>(input.shape[2]),
                        .num_channels = static_cast<int32_t>(input.shape[1] * input.shape[2])};
  }
  return params;
}

void causal_conv(const CausalConvArgs& args, Stream& stream) {
  launch_causal_conv(causal_conv_params(args), stream.handle);
}

}  // namespace attend::kernels::cuda
