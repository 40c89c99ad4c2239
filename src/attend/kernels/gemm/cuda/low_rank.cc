#include "attend/kernels/gemm/cuda/low_rank.h"

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/low_rank_entries.h"
#include "attend/kernels/gemm/cuda/low_rank_table.h"

namespace attend::kernels::cuda {

void shrink_low_rank(const LowRankInput& input, const LowRankProduct& product, const LowRankArrays& arrays,
                     Stream& stream) {
  if (arrays.max_segments == 0 || input.x.num_elements() == 0) return;
  const bool normed = input.norm.deferred;
  const TensorView& x = normed ? input.norm.normalized : input.x;
  const TensorView& squares = input.norm.partial_squares;
  const LowRankShrinkParams params{.arrays = arrays,
                                   .adapter_index = product.adapter_index,
                                   .x = x.data,
                                   .x_stride = x.strides[0],
                                   .in_features = static_cast<int32_t>(x.shape[1]),
                                   .aligned = rows_aligned({&x}),
                                   .partial_squares = normed ? squares.as<const float>() : nullptr,
                                   .squares_stride = normed ? squares.strides[0] : 0,
                                   .num_squares = normed ? static_cast<int32_t>(squares.shape[1]) : 0,
                                   .eps = input.norm.eps};
  const auto launch = x.dtype == DType::kBF16  ? sm80::launch_low_rank_shrink_bf16
                      : x.dtype == DType::kF16 ? sm80::launch_low_rank_shrink_f16
                                               : launch_low_rank_shrink_f32;
  launch(params, static_cast<int>(choose_shrink_grid(x.shape[1], arrays, num_sms()).x), stream.handle);
}

namespace {

LowRankExpandParams expand_params(const LowRankInput& input, const LowRankProduct& product,
                                  const LowRankArrays& arrays, int cta_outs) {
  const TensorView& out = product.out;
  return {.arrays = arrays,
          .adapter_index = product.adapter_index,
          .in_features = static_cast<int32_t>(input.x.shape[1]),
          .cta_outs = cta_outs,
          .out = out.data,
          .out_stride = out.strides[0],
          .out_element = to_element_type(out.dtype),
          .aligned = rows_aligned({&out}),
          .normed = input.norm.deferred};
}

}  // namespace

void expand_low_rank(const LowRankInput& input, const LowRankProduct& product, const LowRankArrays& arrays,
                     Stream& stream) {
  if (arrays.max_segments == 0 || product.out.num_elements() == 0) return;
  const LowRankExpandParams params =
      expand_params(input, product, arrays, choose_expand_outs(arrays.segment_tokens));
  const LowRankGrid grid = choose_expand_grid(product.out.shape[1], arrays, num_sms());
  const DType dtype = input.x.dtype;
  const auto launch = dtype == DType::kBF16  ? sm80::launch_low_rank_expand_bf16
                      : dtype == DType::kF16 ? sm80::launch_low_rank_expand_f16
                                             : launch_low_rank_expand_f32;
  launch(params, static_cast<int>(grid.x), static_cast<int>(grid.y), stream.handle);
}

bool supports_silu_mul(const LowRankInput& input, const LowRankProduct& product, const LowRankArrays& arrays,
                       const TensorView& out) {
  const DType dtype = input.x.dtype;
  return arrays.lists_all && arrays.segment_tokens == kSmallSegment && dtype != DType::kF32 &&
         product.out.dtype == dtype && out.dtype == dtype && out.shape[1] % kOutsMultiple == 0 &&
         rows_aligned({&product.out, &out});
}

void expand_low_rank_silu_mul(const LowRankInput& input, const LowRankProduct& product,
                              const LowRankArrays& arrays, const TensorView& out, Stream& stream) {
  if (arrays.max_segments == 0 || out.num_elements() == 0) return;
  const LowRankGateParams params{.expand = expand_params(input, product, arrays, kGateOuts),
                                 .activated = out.data,
                                 .activated_stride = out.strides[0],
                                 .intermediate = static_cast<int32_t>(out.shape[1])};
  const LowRankGrid grid = choose_gate_grid(out.shape[1], arrays, num_sms());
  const auto launch =
      input.x.dtype == DType::kBF16 ? sm80::launch_low_rank_gate_bf16 : sm80::launch_low_rank_gate_f16;
  launch(params, static_cast<int>(grid.x), static_cast<int>(grid.y), stream.handle);
}

}  // namespace attend::kernels::cuda
