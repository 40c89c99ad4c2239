#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"

#include "attend/base/math.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {

void batch_invariant_gemm(const LinearArgs& args, bool gated, Stream& stream) {
  batch_invariant_gemm(args, gated,
                       batch_invariant_shape_for(args.x.shape[0], args.weight.out_features(),
                                                 ceil_div<int64_t>(args.x.shape[1], kBlockInputs),
                                                 gpu_facts(stream.device).num_sms),
                       stream);
}

void batch_invariant_gemm(const LinearArgs& args, bool gated, const BatchInvariantGemmShape& shape,
                          Stream& stream) {
  constexpr int64_t kBoxRows = 8;  // rows that are swizzled together
  const attend::cuda::DeviceScope scope(stream.device);
  const BatchInvariantGemmTile& tile = shape.tile;
  const int64_t num_rows = args.x.shape[0], last_rows = num_rows - (num_rows - 1) / tile.rows * tile.rows;
  const auto last_box_rows = static_cast<int>(ceil_div(last_rows, kBoxRows) * kBoxRows);
  const auto in_groups = [](const TensorView& out) {
    return size_of(out.dtype) == 2 && out.shape[1] % 8 == 0 && rows_aligned({&out});
  };
  const auto in_pairs = [](const TensorView& out) {
    return out.dtype == DType::kF32 && reinterpret_cast<uintptr_t>(out.data) % 8 == 0 &&
           out.strides[0] % 2 == 0;
  };
  const BatchInvariantGemmParams params{
      .x = map_rows(args.x, tile.rows),
      .last_x = map_rows(args.x, last_box_rows),
      .weight = gated ? map_row_pairs(args.weight.data, gated, tile.features / kPairRows)
                      : map_rows(args.weight.data, tile.features),
      .bias = device_vector(args.bias),
      .out = args.out.data,
      .out_stride = args.out.strides[0],
      .num_rows = static_cast<int32_t>(num_rows),
      .num_weight_rows = static_cast<int32_t>(args.weight.out_features()),
      .out_features = static_cast<int32_t>(args.out.shape[1]),
      .num_k_blocks = static_cast<int32_t>(ceil_div<int64_t>(args.x.shape[1], kBlockInputs)),
      .last_box_rows = last_box_rows,
      .gated = gated,
      .accumulate = args.accumulate,
      .out_in_groups = in_groups(args.out),
      .out_in_pairs = in_pairs(args.out),
      .out_element = to_element_type(args.out.dtype)};
  const auto launch =
      args.x.dtype == DType::kBF16 ? launch_batch_invariant_gemm_bf16 : launch_batch_invariant_gemm_f16;
  launch(params, shape, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
