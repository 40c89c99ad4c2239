#include "attend/kernels/gemm/cuda/fp8_linear.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/round_rows_kernel.h"
#include "attend/kernels/gemm/cuda/matmul.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kPieceAlignment = 256;
constexpr int64_t kRowUnit = 16;  // rows of all launches but the last

int64_t scale_bytes(int64_t count) {
  return round_up(count * static_cast<int64_t>(sizeof(float)), kPieceAlignment);
}

}  // namespace

void fp8_linear(const LinearArgs& args, Stream& stream) {
  const Weight& weight = args.weight;
  const int64_t num_rows = args.x.shape[0], in_features = args.x.shape[1],
                out_features = weight.out_features();
  // Scales of outputs, scales of rows, codes.
  const int64_t left =
      static_cast<int64_t>(args.workspace.size()) - scale_bytes(out_features) - 2 * kPieceAlignment;
  const int64_t fitting = left / (in_features + static_cast<int64_t>(sizeof(float))) / kRowUnit * kRowUnit;
  ensure(fitting > 0, "fp8 products: a workspace of too few bytes");
  const int64_t num_parts = ceil_div(num_rows, fitting);
  const int64_t rows_of_part = round_up(ceil_div(num_rows, num_parts), kRowUnit);
  std::byte* const begin = args.workspace.data();
  auto* const out_scales = reinterpret_cast<float*>(begin);
  auto* const row_scales = reinterpret_cast<float*>(begin + scale_bytes(out_features));
  std::byte* const codes = begin + scale_bytes(out_features) + scale_bytes(std::min(rows_of_part, num_rows));
  for (int64_t first = 0; first < num_rows; first += rows_of_part) {
    const int64_t end = std::min(first + rows_of_part, num_rows);
    const TensorView x = args.x.slice(0, first, end);
    const TensorView rounded =
        TensorView::contiguous(codes, DType::kF8E4M3, {end - first, in_features}, stream.device);
    launch_round_rows({.x = x.data,
                       .x_stride = x.strides[0],
                       .norm = args.norm.weight.data,
                       .norm_eps = args.norm.eps,
                       .num_rows = static_cast<int32_t>(end - first),
                       .in_features = static_cast<int32_t>(in_features),
                       .element = element_of(x.dtype),
                       .to = rounded.data,
                       .scales = row_scales,
                       .group_scales = first == 0 ? weight.scales.as<const float>() : nullptr,
                       .out_scales = out_scales,
                       .num_outs = static_cast<int32_t>(out_features),
                       .group_outs = static_cast<int32_t>(std::min(weight.group_outs, out_features))},
                      stream.handle);
    matmul({.codes = rounded, .scales = row_scales}, {.codes = weight.data, .scales = out_scales},
           args.out.slice(0, first, end), args.accumulate, stream);
  }
}

}  // namespace attend::kernels::cuda
