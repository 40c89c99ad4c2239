#include "attend/kernels/cuda/sm90/dense.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/few_rows.h"
#include "attend/kernels/cuda/sm90/tall_kernel.h"
#include "attend/kernels/cuda/sm90/tensor_map.h"
#include "attend/kernels/cuda/view_params.h"
#include "attend/tensor/cuda.h"
#include "attend_generated/tall_instances.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr std::array kClusterSizes = {1, 2, 4, kMaxClusterSize};

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// What the choice of a shape depends on.
struct DeviceClusters {
  bool can_run = false;
  std::array<int, kClusterSizes.size()> num_clusters{};  // of each size, that run at once

  explicit DeviceClusters(Device device) {
    const attend::cuda::DeviceInfo info = attend::cuda::device_info(device);
    can_run = info.major == 9 && info.minor == 0;
    if (!can_run) return;
    const attend::cuda::DeviceScope scope(device);
    for (size_t i = 0; i < kClusterSizes.size(); ++i) num_clusters[i] = max_clusters(kClusterSizes[i]);
  }
};

const DeviceClusters& clusters_of(Device device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<DeviceClusters>>;
  const std::lock_guard lock(mutex);
  auto& found = devices[device.index];
  if (found == nullptr) found = std::make_unique<DeviceClusters>(device);
  return *found;
}

int token_groups_for(int64_t num_rows) {
  if (num_rows <= kWarpgroupTokens) return 1;
  return num_rows <= 2 * kWarpgroupTokens ? 2 : kMaxTokenGroups;
}

const TallInstances& instances_of(int token_groups, DType dtype) {
  for (const TallInstances& instances : kTallInstances)
    if (instances.token_groups == token_groups && instances.is_bf16 == (dtype == DType::kBF16))
      return instances;
  fail(ErrorCode::kInvalidArgument, "tall dense: ", token_groups, " groups of 64 rows of x; expected 1, 2 or 4");
}

// Rows of x come from L2, which is nearer than where weights come from.
int token_slots_for(int token_groups) {
  static const char* const env = std::getenv("ATTEND_TOKEN_SLOTS");
  if (env) return std::atoi(env);
  return token_groups == 1 ? kMaxTokenSlots : token_groups == 2 ? 4 : 3;
}

TallShape shape_for(int64_t num_weight_rows, int64_t num_chunks, int token_groups,
                     const DeviceClusters& device) {
  (void)num_chunks;
  const int pairs = token_groups == 1 ? 8 : 7;
  return {.tile_pairs = pairs,
          .num_parts = 1,
          .num_clusters = std::min(ceil_div(num_weight_rows, pairs * kPairRows), device.num_clusters[0]),
          .token_groups = token_groups};
}

// Two elements, from an even one on, can be accessed at once.
bool pairs_aligned(const TensorView& tensor) {
  const size_t pair_bytes = 2 * size_of(tensor.dtype);
  return reinterpret_cast<uintptr_t>(tensor.data) % pair_bytes == 0 &&
         (tensor.rank == 1 || tensor.strides[0] % 2 == 0);
}

void launch(const LinearArgs& args, bool gated, const TallShape& shape, Stream& stream) {
  const int num_chunks = ceil_div(args.x.shape[1], kChunkElements);
  const int num_tiles = ceil_div(args.weight.shape[0], shape.tile_pairs * kPairRows);
  const int chunks_of_cta =
      ceil_div(num_tiles, shape.num_clusters) * ceil_div(num_chunks, shape.num_parts);
  const int box_rows = ceil_div(args.x.shape[0], kBoxStep) * kBoxStep;
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
                     .weight_slots = 1,
                     .token_slots = std::min(token_slots_for(shape.token_groups), chunks_of_cta),
                     .gated = gated,
                     .accumulate = args.accumulate,
                     .out_element = element_of(args.out.dtype)};
  const int most_slots = std::min(kMaxWeightSlots, chunks_of_cta);
  const auto fits = [&] { return shared_bytes(params, shape.token_groups) <= kSharedBytes; };
  while (params.weight_slots <= most_slots && fits()) ++params.weight_slots;
  --params.weight_slots;
  if (params.weight_slots == 0)
    fail(ErrorCode::kInvalidArgument, "tall dense: tiles of ", shape.tile_pairs, " pairs in ", shape.num_parts,
         " parts: they do not fit into shared memory");
  instances_of(shape.token_groups, args.x.dtype).launch(params, shape, stream.handle);
}

}  // namespace

bool takes(const LinearArgs& args, const Stream& stream) {
  return args.x.dtype != DType::kF32 && args.x.shape[1] % 8 == 0 && args.weight.shape[0] % kPairRows == 0 &&
         rows_aligned({&args.x, &args.weight}) && pairs_aligned(args.out) &&
         (args.bias.empty() || pairs_aligned(args.bias)) && clusters_of(stream.device).can_run;
}

bool norms(const InputNorm& norm, const TensorView& x) {
  return x.shape[0] <= kMaxNormedTokens && norms_few_rows(norm, x);
}

std::vector<int> tile_pairs_of(int token_groups) {
  std::vector<int> tile_pairs;
  for (const int group_pairs : instances_of(token_groups, DType::kBF16).group_pairs)
    tile_pairs.push_back(feature_groups(token_groups) * group_pairs);
  return tile_pairs;
}

void dense(const LinearArgs& args, bool gated, Stream& stream) {
  const DeviceClusters& device = clusters_of(stream.device);
  const int num_chunks = ceil_div(args.x.shape[1], kChunkElements);
  const int64_t num_rows = args.x.shape[0];
  for (int64_t first = 0; first < num_rows; first += kMaxTokens) {
    const int64_t last = std::min<int64_t>(first + kMaxTokens, num_rows);
    LinearArgs rows = args;
    rows.x = args.x.slice(0, first, last);
    rows.out = args.out.slice(0, first, last);
    dense(rows, gated, shape_for(args.weight.shape[0], num_chunks, token_groups_for(last - first), device),
          stream);
  }
}

void dense(const LinearArgs& args, bool gated, const TallShape& shape, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  launch(args, gated, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
