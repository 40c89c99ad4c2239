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
  const bool plain = product.weight.format == WeightFormat::kPlain;
  ExpertTilesParams params{.weight = {}, .product = product};
  if (plain) params.weight = map_rows(weight, kExpertBoxRows);
  const int outputs = product.gated ? kExpertTileWeights / 2 : kExpertTileWeights;
  const int64_t num_tiles = int64_t{product.num_tiles} * ceil_div(product.out_features, outputs);
  const auto num_ctas = static_cast<int>(std::min<int64_t>(num_tiles, gpu_facts(stream.device).num_sms));
  const auto launch = !plain                         ? launch_mxfp4_expert_tiles_bf16
                      : weight.dtype == DType::kBF16 ? launch_expert_tiles_bf16
                                                     : launch_expert_tiles_f16;
  launch(params, num_ctas, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
