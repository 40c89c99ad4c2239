#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/round_rows_kernel.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/matmul.h"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kPieceAlignment = 256;
constexpr int64_t kRowUnit = 16;  // all launches except the last have a multiple of this many rows

int64_t scale_bytes(int64_t count) {
  return round_up(count * static_cast<int64_t>(sizeof(float)), kPieceAlignment);
}

// Calls multiply(first, end) for chunks of the rows of x such that `row_bytes` per row fit into `num_bytes`.
template <class Multiply>
void for_each_chunk(int64_t num_rows, int64_t num_bytes, int64_t row_bytes, const Multiply& multiply) {
  const int64_t fitting = num_bytes / row_bytes / kRowUnit * kRowUnit;
  ensure(fitting > 0, "fp8 products: the workspace is too small");
  const int64_t rows_per_chunk = round_up(ceil_div(num_rows, ceil_div(num_rows, fitting)), kRowUnit);
  for (int64_t first = 0; first < num_rows; first += rows_per_chunk)
    multiply(first, std::min(first + rows_per_chunk, num_rows));
}

RoundRowsParams make_round_rows_params(const LinearArgs& args, const TensorView& x) {
  RoundRowsParams params{};
  params.x = x.data;
  params.x_stride = x.strides[0];
  params.norm = args.norm.weight.data;
  params.norm_eps = args.norm.eps;
  params.num_rows = static_cast<int32_t>(x.shape[0]);
  params.in_features = static_cast<int32_t>(x.shape[1]);
  params.element = to_element_type(x.dtype);
  return params;
}

}  // namespace

void fp8_linear(const LinearArgs& args, Stream& stream) {
  const Weight& weight = args.weight;
  const int64_t num_rows = args.x.shape[0], in_features = args.x.shape[1],
                out_features = weight.out_features();
  // Workspace: scales of outputs, scales of rows, quantized values.
  const int64_t left =
      static_cast<int64_t>(args.workspace.size()) - scale_bytes(out_features) - 2 * kPieceAlignment;
  std::byte* const begin = args.workspace.data();
  auto* const out_scales = reinterpret_cast<float*>(begin);
  std::byte* const x_row_scales = begin + scale_bytes(out_features);
  for_each_chunk(
      num_rows, left, in_features + static_cast<int64_t>(sizeof(float)), [&](int64_t first, int64_t end) {
        auto* const row_scales = reinterpret_cast<float*>(x_row_scales);
        const TensorView rounded =
            TensorView::contiguous(x_row_scales + scale_bytes(end - first), DType::kF8E4M3,
                                   {end - first, in_features}, stream.device);
        RoundRowsParams rounding = make_round_rows_params(args, args.x.slice(0, first, end));
        rounding.to = rounded.data;
        rounding.scales = row_scales;
        rounding.group_scales = first == 0 ? weight.scales.as<const float>() : nullptr;
        rounding.out_scales = out_scales;
        rounding.num_outs = static_cast<int32_t>(out_features);
        rounding.group_outs = static_cast<int32_t>(std::min(weight.group_outs, out_features));
        launch_round_rows(rounding, stream.handle);
        matmul({.codes = rounded, .scales = row_scales}, {.codes = weight.data, .scales = out_scales},
               args.out.slice(0, first, end), args.accumulate, stream);
      });
}

void fp8_block_linear(const LinearArgs& args, Stream& stream) {
  const int64_t in_features = args.x.shape[1],
                num_blocks = ceil_div<int64_t>(in_features, kRoundedBlockInputs);
  // Workspace: scales of the blocks of rows, quantized values.
  const int64_t left = static_cast<int64_t>(args.workspace.size()) - kPieceAlignment;
  const int64_t row_bytes = in_features + num_blocks * static_cast<int64_t>(sizeof(float));
  for_each_chunk(args.x.shape[0], left, row_bytes, [&](int64_t first, int64_t end) {
    const int64_t num_rows = end - first;
    auto* const scales = reinterpret_cast<float*>(args.workspace.data());
    const TensorView rounded =
        TensorView::contiguous(args.workspace.data() + scale_bytes(num_blocks * num_rows), DType::kF8E4M3,
                               {num_rows, in_features}, stream.device);
    RoundRowsParams rounding = make_round_rows_params(args, args.x.slice(0, first, end));
    rounding.to = rounded.data;
    rounding.scales = scales;
    rounding.block_scales = true;
    rounding.block_stride = static_cast<int32_t>(num_rows);
    launch_round_rows(rounding, stream.handle);
    sm90::fp8_block_gemm({.codes = rounded, .scales = scales, .stride = num_rows}, args.weight,
                         args.out.slice(0, first, end), args.accumulate, stream);
  });
}

}  // namespace attend::kernels::cuda
