#include "attend/kernels/gemm/cuda/sm90/tall.h"

#include "attend/base/math.h"
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/device_rows.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab_gemm_shape.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {
namespace {

bool multicasts_weights(int64_t num_rows) { return num_rows > kGatedMlpRows; }

// Tiles that a cluster multiplies at once.
int tiles_of_cluster(int64_t num_rows) { return multicasts_weights(num_rows) ? 1 : kGatedMlpClusterSize; }

int most_clusters_of(const Stream& stream) {
  return device_attribute(stream.device.index, cudaDevAttrMultiProcessorCount) / kGatedMlpClusterSize;
}

// Of a height, so that all clusters begin at once and end together as nearly as they can.
struct TallRounds {
  int64_t num_rounds, num_clusters;

  TallRounds(int64_t num_pairs, int tile_pairs, int64_t num_rows, int most_clusters) {
    const int64_t num_turns = ceil_div<int64_t>(num_pairs, tile_pairs * tiles_of_cluster(num_rows));
    num_rounds = ceil_div<int64_t>(num_turns, most_clusters);
    num_clusters = ceil_div(num_turns, num_rounds);
  }
};

// The height whose last CTA ends first; of equals the tallest, which reads x the least often.
GatedMlpGemmShape tall_shape_for(int64_t num_pairs, int64_t num_rows, int most_clusters) {
  GatedMlpGemmShape best{};
  int64_t fewest = 0;
  for (const int tile_pairs : kGatedMlpTilePairs) {
    const TallRounds rounds(num_pairs, tile_pairs, num_rows, most_clusters);
    const int64_t pairs_of_cta = rounds.num_rounds * tile_pairs;
    if (best.tile_pairs != 0 && pairs_of_cta > fewest) continue;
    best = {.tile_pairs = tile_pairs, .num_clusters = static_cast<int>(rounds.num_clusters)};
    fewest = pairs_of_cta;
  }
  return best;
}

}  // namespace

bool takes_tall_tiles(const LinearArgs& args, const Stream& stream) {
  const auto out_address = reinterpret_cast<uintptr_t>(args.out.data);
  return args.x.dtype != DType::kF32 && args.x.shape[0] <= kMaxGatedMlpRows && args.x.shape[1] % 8 == 0 &&
         args.weight.shape[0] % kPairRows == 0 && rows_aligned({&args.x, &args.weight}) &&
         args.out.dtype == args.x.dtype && out_address % 8 == 0 && args.out.strides[0] % 4 == 0 &&
         runs_sm90a(stream.device.index);
}

double tall_tiles_evenness(int64_t num_weight_rows, int64_t num_rows, const Stream& stream) {
  const int64_t num_pairs = ceil_div<int64_t>(num_weight_rows, kPairRows);
  const int most_clusters = most_clusters_of(stream);
  const GatedMlpGemmShape shape = tall_shape_for(num_pairs, num_rows, most_clusters);
  const TallRounds rounds(num_pairs, shape.tile_pairs, num_rows, most_clusters);
  return static_cast<double>(num_pairs) / static_cast<double>(rounds.num_rounds * most_clusters *
                                                              tiles_of_cluster(num_rows) * shape.tile_pairs);
}

void tall_tiles(const LinearArgs& args, Stream& stream) {
  tall_tiles(args,
             tall_shape_for(args.weight.shape[0] / kPairRows, args.x.shape[0], most_clusters_of(stream)),
             stream);
}

void tall_tiles(const LinearArgs& args, const GatedMlpGemmShape& shape, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const bool share_weights = multicasts_weights(args.x.shape[0]);
  const GatedMlpGemmParams params{
      .weight = map_row_pairs(args.weight, /*gated=*/true,
                              share_weights ? shape.tile_pairs / kGatedMlpClusterSize : shape.tile_pairs),
      .x = map_rows(args.x, share_weights ? kGatedMlpRows : kGatedMlpRows / kGatedMlpClusterSize),
      .bias = device_vector(args.bias),
      .out = args.out.data,
      .out_stride = args.out.strides[0],
      .num_rows = static_cast<int32_t>(args.x.shape[0]),
      .out_features = static_cast<int32_t>(args.out.shape[1]),
      .num_tiles =
          static_cast<int32_t>(ceil_div<int64_t>(args.weight.shape[0], shape.tile_pairs * kPairRows)),
      .num_k_blocks = static_cast<int32_t>(ceil_div<int64_t>(args.x.shape[1], kGatedMlpBlockK)),
      .multicasts_weights = share_weights};
  const auto launch = args.x.dtype == DType::kBF16 ? launch_gated_mlp_gemm_bf16 : launch_gated_mlp_gemm_f16;
  launch(params, shape, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
