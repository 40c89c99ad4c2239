#include "attend/base/math.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// Tiles that a cluster multiplies concurrently.
int tiles_per_cluster(int64_t num_rows) { return multicasts_weights(num_rows) ? 1 : kGatedMlpClusterSize; }

// Waves for a tile height: all clusters start together, and finish together as nearly as possible.
struct GatedMlpWaves {
  int64_t num_waves, num_clusters;

  GatedMlpWaves(int64_t num_pairs, int tile_pairs, int64_t num_rows, int max_clusters) {
    const int64_t num_cluster_tiles = ceil_div<int64_t>(num_pairs, tile_pairs * tiles_per_cluster(num_rows));
    num_waves = ceil_div<int64_t>(num_cluster_tiles, max_clusters);
    num_clusters = ceil_div(num_cluster_tiles, num_waves);
  }
};

}  // namespace

// If several heights finish at the same time, selects the tallest, which reads x least often.
GatedMlpGemmShape gated_mlp_shape_for(int64_t num_weight_rows, int64_t num_rows, int num_sms) {
  const int64_t num_pairs = ceil_div<int64_t>(num_weight_rows, kPairRows);
  GatedMlpGemmShape best{};
  int64_t fewest_pairs = 0;
  for (const int tile_pairs : kGatedMlpTilePairs) {
    const GatedMlpWaves waves(num_pairs, tile_pairs, num_rows, num_sms / kGatedMlpClusterSize);
    const int64_t pairs_per_cta = waves.num_waves * tile_pairs;
    if (best.tile_pairs != 0 && pairs_per_cta > fewest_pairs) continue;
    best = {.tile_pairs = tile_pairs, .num_clusters = static_cast<int>(waves.num_clusters)};
    fewest_pairs = pairs_per_cta;
  }
  return best;
}

double gated_mlp_wave_efficiency(int64_t num_weight_rows, int64_t num_rows, int num_sms) {
  const int64_t num_pairs = ceil_div<int64_t>(num_weight_rows, kPairRows);
  const int max_clusters = num_sms / kGatedMlpClusterSize;
  const GatedMlpGemmShape shape = gated_mlp_shape_for(num_weight_rows, num_rows, num_sms);
  const GatedMlpWaves waves(num_pairs, shape.tile_pairs, num_rows, max_clusters);
  return static_cast<double>(num_pairs) /
         static_cast<double>(waves.num_waves * max_clusters * tiles_per_cluster(num_rows) * shape.tile_pairs);
}

}  // namespace attend::kernels::cuda::sm90
