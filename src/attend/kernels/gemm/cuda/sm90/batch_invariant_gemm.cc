#include "attend/kernels/gemm/cuda/sm90/batch_invariant_gemm.h"

#include "attend/base/math.h"
#include "attend/kernels/common/cuda/device_rows.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant_gemm_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kBlockElements = 64;

// Small tiles share the reading of weights among more SMs.
const BatchInvariantGemmTile& shape_for(const LinearArgs& args, int num_sms) {
  return num_large_tiles(args.x.shape[0], args.out.shape[1]) < num_sms ? kSmallTile : kLargeTile;
}

}  // namespace

void batch_invariant_gemm(const LinearArgs& args, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const int num_sms = gpu_facts(stream.device).num_sms;
  const BatchInvariantGemmTile& shape = shape_for(args, num_sms);
  const BatchInvariantGemmParams params{
      .x = map_rows(args.x, shape.rows),
      .weight = map_rows(args.weight.data, shape.features),
      .bias = device_vector(args.bias),
      .out = args.out.data,
      .out_stride = args.out.strides[0],
      .num_rows = static_cast<int32_t>(args.x.shape[0]),
      .out_features = static_cast<int32_t>(args.out.shape[1]),
      .num_k_blocks = static_cast<int32_t>(ceil_div<int64_t>(args.x.shape[1], kBlockElements)),
      .accumulate = args.accumulate,
      .out_paired = reinterpret_cast<uintptr_t>(args.out.data) % 4 == 0 && args.out.strides[0] % 2 == 0,
      .out_element = element_of(args.out.dtype)};
  const auto launch =
      args.x.dtype == DType::kBF16 ? launch_batch_invariant_gemm_bf16 : launch_batch_invariant_gemm_f16;
  launch(params, shape, num_sms, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
