#include <algorithm>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// Cycles per K-block of a tile: the maximum of tensor-core time, of the SM's load time, and of the time of
// its share of memory bandwidth for the weight if only one tile reads it.
double k_block_cycles(const BatchInvariantGemmTile& tile, int64_t num_rows) {
  constexpr double kTensorShare = 0.75;  // fraction of the tensor cores' peak that wgmma of these widths
                                         // reaches
  constexpr double kBytesPerCycle = 45.0, kMemoryBytesPerCycle = 17.0;
  constexpr int kInputBytes = 128, kCyclesPerFeature = 2;  // per 64 rows
  const int64_t rows = std::min<int64_t>(num_rows, tile.rows);
  const auto tensor = static_cast<double>(ceil_div<int64_t>(rows, 64) * kCyclesPerFeature * tile.features);
  const auto bytes = static_cast<double>(kInputBytes * (rows + tile.features));
  const double weight_bytes = num_rows <= tile.rows ? kInputBytes * tile.features : 0.0;
  return std::max({tensor / kTensorShare, bytes / kBytesPerCycle, weight_bytes / kMemoryBytesPerCycle});
}

}  // namespace

BatchInvariantGemmShape batch_invariant_shape_for(int64_t num_rows, int64_t num_weight_rows,
                                                  int64_t num_k_blocks, int num_sms) {
  constexpr double kTileCycles = 5000.0;  // first K-block and epilogue
  BatchInvariantGemmShape best{};
  double fewest_cycles = 0.0;
  for (const BatchInvariantGemmTile& tile : kBatchInvariantTiles) {
    const int64_t num_tiles =
        ceil_div<int64_t>(num_rows, tile.rows) * ceil_div<int64_t>(num_weight_rows, tile.features);
    const double cycles = static_cast<double>(ceil_div<int64_t>(num_tiles, num_sms)) *
                          (static_cast<double>(num_k_blocks) * k_block_cycles(tile, num_rows) + kTileCycles);
    if (best.num_ctas > 0 && cycles >= fewest_cycles) continue;
    best = {.tile = tile, .num_ctas = static_cast<int>(std::min<int64_t>(num_tiles, num_sms))};
    fewest_cycles = cycles;
  }
  return best;
}

}  // namespace attend::kernels::cuda::sm90
