#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/head_linear_kernel.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm80/tiled_gemm.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kPieceElements = 8;  // elements per 16-byte piece

bool aligned(const void* data, int64_t num_bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(num_bytes) == 0;
}

// Returns true if elements are 16-bit, x and the weight consist of 16-byte pieces, and out of pairs of
// elements.
bool fits_head_gemm(const HeadLinearParams& params) {
  const auto whole_pieces = [](auto... counts) { return ((counts % kPieceElements == 0) && ...); };
  const int64_t weight_row_stride =
      params.weight_in_stride == 1 ? params.weight_out_stride : params.weight_in_stride;
  return params.element != Element::kF32 && whole_pieces(params.in_features, params.out_features) &&
         whole_pieces(params.x.token_stride, params.x.head_stride) && aligned(params.x.data, 16) &&
         whole_pieces(weight_row_stride, params.weight_head_stride) && aligned(params.weight, 16) &&
         params.out.token_stride % 2 == 0 && params.out.head_stride % 2 == 0 && aligned(params.out.data, 4);
}

}  // namespace

void head_linear(const HeadLinearArgs& args, Stream& stream) {
  const HeadLinearParams params{.x = token_rows(args.x),
                                .weight = args.weight.data,
                                .weight_head_stride = args.weight.strides[0],
                                .weight_out_stride = args.weight.strides[1],
                                .weight_in_stride = args.weight.strides[2],
                                .out = out_rows(args.out),
                                .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                                .num_heads = static_cast<int32_t>(args.x.shape[1]),
                                .in_features = static_cast<int32_t>(args.x.shape[2]),
                                .out_features = static_cast<int32_t>(args.out.shape[2]),
                                .element = to_element_type(args.x.dtype)};
  if (!fits_head_gemm(params)) return launch_head_linear(params, stream.handle);
  if (params.element == Element::kBF16) return sm80::launch_head_gemm_bf16(params, stream.handle);
  sm80::launch_head_gemm_f16(params, stream.handle);
}

}  // namespace attend::kernels::cuda
