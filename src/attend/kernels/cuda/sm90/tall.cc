#include "attend/kernels/cuda/sm90/tall.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/few_rows.h"
#include "attend/kernels/cuda/sm90/device_clusters.h"
#include "attend/kernels/cuda/sm90/tensor_map.h"
#include "attend/kernels/cuda/view_params.h"
#include "attend/tensor/cuda.h"
#include "attend_generated/tall_instances.h"

namespace attend::kernels::cuda::sm90 {
namespace {

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

int token_groups_for(int64_t num_rows) {
  if (num_rows <= kGroupTokens) return 1;
  return num_rows <= 2 * kGroupTokens ? 2 : kMaxTokenGroups;
}

const TallInstances& instances_of(int token_groups, DType dtype) {
  for (const TallInstances& instances : kTallInstances)
    if (instances.token_groups == token_groups && instances.is_bf16 == (dtype == DType::kBF16))
      return instances;
  fail(ErrorCode::kInvalidArgument, "tall tiles: ", token_groups,
       " groups of 64 rows of x; expected 1, 2 or 4");
}

// Two elements, from an even one on, can be accessed at once.
bool pairs_aligned(const TensorView& tensor) {
  const size_t pair_bytes = 2 * size_of(tensor.dtype);
  return reinterpret_cast<uintptr_t>(tensor.data) % pair_bytes == 0 &&
         (tensor.rank == 1 || tensor.strides[0] % 2 == 0);
}

// The fastest way to share a layer in so many parts, as estimated from timings of 32 rows on an H200; for 0
// parts in any number. A chunk takes the time that a CTA needs for it, or its share of what memory gives when
// others read; more time goes into the end of a tile.
TallShape shape_for(int64_t num_weight_rows, int64_t num_chunks, int num_parts, int token_groups,
                    const DeviceClusters& device) {
  constexpr double kTileMicroseconds = 1.0, kChunkMicroseconds = 0.45;
  constexpr double kSharedPairMicroseconds = 0.000475;  // for each CTA that reads
  TallShape best{};
  double best_microseconds = 0.0;
  for (const int tile_pairs : tile_pairs_of(token_groups))
    for (size_t i = 0; i < kClusterSizes.size(); ++i) {
      const int parts = kClusterSizes[i];
      if (num_parts > 0 ? parts != num_parts : parts > num_chunks || device.num_clusters[i] == 0) continue;
      const int num_tiles = ceil_div(num_weight_rows, tile_pairs * kPairRows);
      const int num_rounds = ceil_div(num_tiles, device.num_clusters[i]);
      const int at_once = ceil_div(num_tiles, num_rounds);
      const double chunk_microseconds =
          std::max(kChunkMicroseconds, kSharedPairMicroseconds * tile_pairs * at_once * parts);
      const double microseconds =
          num_rounds * (ceil_div(num_chunks, parts) * chunk_microseconds + kTileMicroseconds);
      if (best.num_clusters > 0 && microseconds >= best_microseconds) continue;
      best = {tile_pairs, parts, parts == 1 ? at_once : num_tiles, token_groups};
      best_microseconds = microseconds;
    }
  return best;
}

// Both rings as deep as they can be, then that of the weights. x comes behind weights that were asked for
// before, so it takes as long as these.
void fill_shared_memory(TallParams& params, int chunks_of_cta, const TallShape& shape) {
  const int most_slots = std::min(kMaxTallSlots, chunks_of_cta);
  const auto fits = [&](int token_slots, int weight_slots) {
    params.token_slots = token_slots;
    params.weight_slots = weight_slots;
    return weight_slots <= most_slots && tall_shared_bytes(params, shape.token_groups) <= kSharedBytes;
  };
  int token_slots = 0;
  while (fits(token_slots + 1, token_slots + 1)) ++token_slots;
  int weight_slots = token_slots;
  while (fits(token_slots, weight_slots + 1)) ++weight_slots;
  params.token_slots = token_slots;
  params.weight_slots = weight_slots;
  if (token_slots == 0)
    fail(ErrorCode::kInvalidArgument, "tall tiles of ", shape.tile_pairs, " pairs in ", shape.num_parts,
         " parts: they do not fit into shared memory");
}

}  // namespace

bool takes_tall_tiles(const LinearArgs& args, const Stream& stream) {
  return args.x.dtype != DType::kF32 && args.x.shape[1] % 8 == 0 && args.weight.shape[0] % kPairRows == 0 &&
         rows_aligned({&args.x, &args.weight}) && pairs_aligned(args.out) &&
         (args.bias.empty() || pairs_aligned(args.bias)) && clusters_of(stream.device).can_run;
}

bool norms_tall_tiles(const InputNorm& norm, const TensorView& x) {
  return x.shape[0] <= kMaxNormedTokens && norms_few_rows(norm, x);
}

std::vector<int> tile_pairs_of(int token_groups) {
  std::vector<int> tile_pairs;
  for (const int group_pairs : instances_of(token_groups, DType::kBF16).group_pairs)
    tile_pairs.push_back(feature_groups(token_groups) * group_pairs);
  return tile_pairs;
}

void tall_tiles(const LinearArgs& args, bool gated, Stream& stream) {
  const DeviceClusters& device = clusters_of(stream.device);
  const int64_t num_rows = args.x.shape[0], num_weight_rows = args.weight.shape[0];
  const int num_chunks = ceil_div(args.x.shape[1], kChunkElements);
  // Of the weight's shape and the device alone, as bits depend on it.
  const int num_parts =
      shape_for(num_weight_rows, num_chunks, /*num_parts=*/0, /*token_groups=*/1, device).num_parts;
  for (int64_t first = 0; first < num_rows; first += kMaxTallTokens) {
    const int64_t last = std::min<int64_t>(first + kMaxTallTokens, num_rows);
    LinearArgs rows = args;
    rows.x = args.x.slice(0, first, last);
    rows.out = args.out.slice(0, first, last);
    tall_tiles(rows, gated,
               shape_for(num_weight_rows, num_chunks, num_parts, token_groups_for(last - first), device),
               stream);
  }
}

void tall_tiles(const LinearArgs& args, bool gated, const TallShape& shape, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const int num_chunks = ceil_div(args.x.shape[1], kChunkElements);
  const int num_tiles = ceil_div(args.weight.shape[0], shape.tile_pairs * kPairRows);
  const int box_rows = ceil_div(args.x.shape[0], kBoxStep) * kBoxStep;
  const TallInstances& instances = instances_of(shape.token_groups, args.x.dtype);
  const std::vector<int> heights = tile_pairs_of(shape.token_groups);
  if (std::find(heights.begin(), heights.end(), shape.tile_pairs) == heights.end())
    fail(ErrorCode::kInvalidArgument, "tall tiles of ", shape.tile_pairs, " pairs: there is no kernel for ",
         shape.token_groups, " groups of 64 rows of x");
  TallParams params{.weight = map_row_pairs(args.weight, gated, shape.tile_pairs),
                    .x = map_rows(args.x, box_rows),
                    .norm = args.norm.weight.data,
                    .norm_eps = args.norm.eps,
                    .bias = device_vector(args.bias),
                    .out = args.out.data,
                    .out_stride = args.out.strides[0],
                    .num_rows = static_cast<int32_t>(args.x.shape[0]),
                    .in_features = static_cast<int32_t>(args.x.shape[1]),
                    .out_features = static_cast<int32_t>(args.out.shape[1]),
                    .num_tiles = num_tiles,
                    .num_chunks = num_chunks,
                    .tile_pairs = shape.tile_pairs,
                    .num_parts = shape.num_parts,
                    .box_rows = box_rows,
                    .weight_slots = 0,
                    .token_slots = 0,
                    .gated = gated,
                    .accumulate = args.accumulate,
                    .out_element = element_of(args.out.dtype)};
  fill_shared_memory(params, ceil_div(num_tiles, shape.num_clusters) * ceil_div(num_chunks, shape.num_parts),
                     shape);
  instances.launch(params, shape, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
