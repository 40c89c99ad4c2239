#include "attend/kernels/moe/cuda/sm90/expert_tiles.h"

#include <algorithm>

#include "attend/base/math.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/moe/cuda/sm90/expert_tiles_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {

static_assert(kExpertTilesRows == kExpertTileRows);

void expert_tiles(const GroupedGemmParams& product, const TensorView& weight, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const ExpertTilesParams params{.weight = map_rows(weight, kExpertBoxRows), .product = product};
  const int outputs = product.gated ? kExpertTileWeights / 2 : kExpertTileWeights;
  const int64_t num_tiles = int64_t{product.num_tiles} * ceil_div(product.out_features, outputs);
  const auto num_ctas = static_cast<int>(std::min<int64_t>(num_tiles, gpu_facts(stream.device).num_sms));
  const auto launch = weight.dtype == DType::kBF16 ? launch_expert_tiles_bf16 : launch_expert_tiles_f16;
  launch(params, num_ctas, stream.handle);
}

static_assert(kMxFp4TilesInputs == kMxFp4BlockInputs);

void mxfp4_tiles(const GroupedGemmParams& product, int64_t num_rows, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const TensorView x = TensorView::contiguous(const_cast<void*>(product.x), DType::kBF16,
                                              {num_rows, product.in_features}, stream.device);
  launch_mxfp4_tiles_bf16({.x = map_rows(x, kMxFp4BoxRows), .product = product},
                          gpu_facts(stream.device).num_sms, stream.handle);
}

void mxfp4_inputs(const void* from, const int32_t* row_token, void* to, int64_t num_rows, int64_t in_features,
                  Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  launch_gather_inputs({.from = from,
                        .row_token = row_token,
                        .to = to,
                        .num_rows = static_cast<int32_t>(num_rows),
                        .in_features = static_cast<int32_t>(in_features)},
                       stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
