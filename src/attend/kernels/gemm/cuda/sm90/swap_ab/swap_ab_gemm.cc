#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr std::array kClusterSizes = {1, 2, 4, kMaxClusterSize};
// Cluster sizes of the scaled quantized GEMM with enough shared memory for the other CTAs' partial sums.
constexpr std::array kScaledClusterSizes = {1, 2, 3, 4, 6, 8};

int num_parts(int64_t whole, int64_t part) { return static_cast<int>(ceil_div(whole, part)); }

// Device properties that the choice of a shape depends on.
struct DeviceClusters {
  std::array<int, kMaxClusterSize + 1> num_clusters{};  // by cluster size: clusters that run concurrently

  explicit DeviceClusters(Device device) {
    const attend::cuda::DeviceScope scope(device);
    for (const int size : kScaledClusterSizes) num_clusters[static_cast<size_t>(size)] = max_clusters(size);
  }
  int num_clusters_with_size(int size) const { return num_clusters[static_cast<size_t>(size)]; }
};

const DeviceClusters& device_clusters(Device device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<DeviceClusters>>;
  const std::lock_guard lock(mutex);
  auto& found = devices[device.index];
  if (found == nullptr) found = std::make_unique<DeviceClusters>(device);
  return *found;
}

int tokens_for(int64_t num_rows) {
  for (const int num_tokens : {32, 64})
    if (num_rows <= num_tokens) return num_tokens;
  return kMaxTokens;
}

// Maximum rows per launch.
int64_t max_launch_rows(const LinearArgs& args) {
  const bool defers_to_quantized = args.weight.format != WeightFormat::kPlain && !args.norm.weight.empty();
  return defers_to_quantized ? kMaxDeferredQuantizedTokens : kMaxTokens;
}

// View of quantized values as 16-bit elements, the unit of K-blocks of W.
TensorView as_elements(const Weight& weight) {
  const TensorView& data = weight.data;
  if (weight.format == WeightFormat::kPlain) return data;
  return TensorView::contiguous(
      data.data, DType::kBF16, {data.shape[0], data.strides[0] / static_cast<int64_t>(size_of(DType::kBF16))},
      data.device);
}

// K-blocks of x per K-block of W, which is 128 bytes of a row.
int64_t token_blocks_per_weight_block(const Weight& weight) {
  switch (weight.format) {
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
      return 2;
    case WeightFormat::kInt4:
      return 4;
    default:
      return 1;
  }
}

// Stages of x. Rows of x are read from L2, which is closer than the memory of weights. Measured in layers.
int64_t token_stages_for(int num_tokens) {
  if (num_tokens == kMaxTokens) return 4;
  return num_tokens > 32 ? 10 : kMaxTokenStages;
}

DeferredNorm deferred_norm(const InputNorm& norm) {
  if (norm.weight.empty()) return {};
  return {.partial_squares = norm.partial_squares.as<float>(),
          .stride = norm.partial_squares.strides[0],
          .num_partial_squares = static_cast<int32_t>(norm.partial_squares.shape[1]),
          .eps = norm.eps};
}

// Returns true if this product defers the norm of its results.
bool defers_norm(const LinearArgs& args, bool gated) {
  if (args.next_norm == nullptr || gated) return false;
  const InputNorm& next = *args.next_norm;
  constexpr int64_t kSquaresPerAccess = 4;
  return args.out.dtype == DType::kBF16 && next.weight.dtype == DType::kBF16 &&
         !next.partial_squares.empty() && next.partial_squares.shape[1] % kSquaresPerAccess == 0 &&
         rows_aligned({&args.out, &next.weight, &next.normalized, &next.partial_squares});
}

NextNorm next_norm(const InputNorm* norm) {
  if (norm == nullptr) return {};
  return {.weight = norm->weight.data,
          .weighted = norm->normalized.data,
          .weighted_stride = norm->normalized.strides[0],
          .partial_squares = norm->partial_squares.as<float>(),
          .partial_squares_stride = norm->partial_squares.strides[0]};
}

// Returns the norm restricted to rows [first, last).
InputNorm slice_rows(InputNorm norm, int64_t first, int64_t last) {
  if (norm.weight.empty()) return norm;
  norm.normalized = norm.normalized.slice(0, first, last);
  norm.partial_squares = norm.partial_squares.slice(0, first, last);
  return norm;
}

// Returns the fastest partition of a layer, estimated from timings of up to 64 rows on an H200. A CTA reads
// its K-blocks at an SM's load rate, or at its share of memory bandwidth if more CTAs read; the ends of its
// tiles cost additional time. Depends only on the weight's shape and the device, since bits depend on it.
SwapAbGemmShape shape_for(int64_t num_weight_rows, int64_t num_k_blocks, const DeviceClusters& device) {
  constexpr double kTileMicroseconds = 1.0;
  constexpr double kBlockMicroseconds = 0.16, kPairMicroseconds = 0.01;
  constexpr double kSharedPairMicroseconds = 0.000475;  // per reading CTA
  constexpr int kMaxPairs = kMaxWarpgroups * kWarpgroupRows / kPairRows;
  SwapAbGemmShape best{};
  double best_microseconds = 0.0;
  for (int tile_pairs = 1; tile_pairs <= kMaxPairs; ++tile_pairs)
    for (const int cluster_size : kClusterSizes) {
      if (cluster_size > std::min<int64_t>(num_k_blocks, kMinColumns * tile_pairs)) continue;
      if (device.num_clusters_with_size(cluster_size) == 0) continue;
      const int num_tiles = num_parts(num_weight_rows, tile_pairs * kPairRows);
      const int num_waves = num_parts(num_tiles, device.num_clusters_with_size(cluster_size));
      const int num_clusters = num_parts(num_tiles, num_waves);
      const double k_block_microseconds =
          std::max(kBlockMicroseconds + kPairMicroseconds * tile_pairs,
                   kSharedPairMicroseconds * tile_pairs * num_clusters * cluster_size);
      const double microseconds =
          num_waves * (num_parts(num_k_blocks, cluster_size) * k_block_microseconds + kTileMicroseconds);
      if (best.num_clusters > 0 && microseconds >= best_microseconds) continue;
      best = {.tile_pairs = tile_pairs, .cluster_size = cluster_size, .num_clusters = num_clusters};
      best_microseconds = microseconds;
    }
  ensure(best.num_clusters > 0, "swap-AB split-K GEMM: no CTA fits on this device");
  return best;
}

// Like shape_for(), for the scaled quantized GEMM: estimates the cycles of a K-block of a CTA's tiles, bound
// by tensor cores and by dequantization, and of their ends, from timings on an H200.
SwapAbGemmShape scaled_shape_for(int64_t num_weight_rows, int64_t num_k_blocks, WeightFormat format,
                                 const DeviceClusters& device) {
  constexpr int kTileRows = kQuantizedTileWarpgroups * kWarpgroupRows;
  const bool fp8 = format == WeightFormat::kFp8;
  const int64_t one_tile_block = fp8 ? 1240 : 2250, two_tiles_block = fp8 ? 2360 : 4240;
  constexpr int64_t kTileEnd = 5500, kSharedTileEnd = 8200;
  SwapAbGemmShape best{};
  int64_t best_cycles = 0;
  for (const int tiles : {1, 2})
    for (const int cluster_size : kScaledClusterSizes) {
      if (cluster_size > num_k_blocks || device.num_clusters_with_size(cluster_size) == 0) continue;
      const int num_tiles = num_parts(num_weight_rows, tiles * kTileRows);
      const int num_waves = num_parts(num_tiles, device.num_clusters_with_size(cluster_size));
      const int64_t blocks = num_parts(num_k_blocks, cluster_size);
      const int64_t cycles = num_waves * (blocks * (tiles == 1 ? one_tile_block : two_tiles_block) +
                                          tiles * (cluster_size == 1 ? kTileEnd : kSharedTileEnd));
      if (best.num_clusters > 0 && cycles >= best_cycles) continue;
      best = {.tile_pairs = kTileRows / kPairRows,
              .cluster_size = cluster_size,
              .num_clusters = num_parts(num_tiles, num_waves),
              .scaled_tiles = tiles};
      best_cycles = cycles;
    }
  return best;
}

// Launches the kernel. args.next_norm is deferred if it is set.
void launch(const LinearArgs& args, bool gated, SwapAbGemmShape shape, Stream& stream) {
  const int64_t num_weight_rows = args.weight.out_features();
  const TensorView weight = as_elements(args.weight);
  const int num_k_blocks = num_parts(weight.shape[1], kBlockK);
  const bool scaled = shape.scaled_tiles > 0;
  shape.num_tokens = scaled ? kMaxTokens : tokens_for(args.x.shape[0]);
  const int num_tiles = num_parts(num_weight_rows, shape.tile_pairs * kPairRows);
  const int k_blocks_per_cta =
      num_parts(num_tiles, shape.num_clusters) * num_parts(num_k_blocks, shape.cluster_size);
  const int token_stages =
      scaled ? kScaledQuantizedTokenStages
             : static_cast<int>(std::min(token_stages_for(shape.num_tokens),
                                         k_blocks_per_cta * token_blocks_per_weight_block(args.weight)));
  const int weight_stages =
      scaled ? kScaledQuantizedWeightStages
             : std::min(max_weight_stages(kSharedBytes, token_stages, shape), k_blocks_per_cta);
  const TensorView& x = args.norm.weight.empty() ? args.x : args.norm.normalized;
  const SwapAbGemmParams params{.weight = map_row_pairs(weight, gated, shape.tile_pairs),
                                .x = map_rows(x, shape.num_tokens),
                                .norm = deferred_norm(args.norm),
                                .bias = device_vector(args.bias),
                                .next_norm = next_norm(args.next_norm),
                                .out = args.out.data,
                                .out_stride = args.out.strides[0],
                                .num_rows = static_cast<int32_t>(args.x.shape[0]),
                                .out_features = static_cast<int32_t>(args.out.shape[1]),
                                .num_tiles = num_tiles,
                                .num_k_blocks = num_k_blocks,
                                .tile_pairs = shape.tile_pairs,
                                .cluster_size = shape.cluster_size,
                                .cluster_shift = std::countr_zero(static_cast<unsigned>(shape.cluster_size)),
                                .weight_stages = weight_stages,
                                .token_stages = token_stages,
                                .gated = gated,
                                .accumulate = args.accumulate,
                                .out_aligned = rows_aligned({&args.out}),
                                .out_element = to_element_type(args.out.dtype)};
  if (args.weight.format != WeightFormat::kPlain) {
    const bool bf16 = args.x.dtype == DType::kBF16;
    const auto launch_quantized = scaled
                                      ? (bf16 ? launch_scaled_quantized_bf16 : launch_scaled_quantized_f16)
                                      : (bf16 ? launch_swap_ab_quantized_bf16 : launch_swap_ab_quantized_f16);
    return launch_quantized({params, quantized_weight(args.weight)}, shape, stream.handle);
  }
  const auto launch_dtype = args.x.dtype == DType::kBF16 ? launch_swap_ab_gemm_bf16 : launch_swap_ab_gemm_f16;
  launch_dtype(params, shape, stream.handle);
}

}  // namespace

bool swap_ab_gemm(const LinearArgs& args, bool gated, Stream& stream) {
  const int num_k_blocks = num_parts(as_elements(args.weight).shape[1], kBlockK);
  const SwapAbGemmShape shape =
      shape_for(args.weight.out_features(), num_k_blocks, device_clusters(stream.device));
  return swap_ab_gemm(args, gated, shape, stream);
}

bool swap_ab_gemm(const LinearArgs& args, bool gated, const SwapAbGemmShape& shape, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  ensure(args.norm.weight.empty() || args.norm.deferred, "swap-AB split-K GEMM: the norm was not deferred");
  const int64_t num_rows = args.x.shape[0];
  const bool defers = defers_norm(args, gated);
  const int64_t max_rows = max_launch_rows(args);
  for (int64_t first = 0; first < num_rows; first += max_rows) {
    const int64_t last = std::min(first + max_rows, num_rows);
    InputNorm next = defers ? slice_rows(*args.next_norm, first, last) : InputNorm{};
    LinearArgs rows = args;
    rows.x = args.x.slice(0, first, last);
    rows.out = args.out.slice(0, first, last);
    rows.norm = slice_rows(args.norm, first, last);
    rows.next_norm = defers ? &next : nullptr;
    launch(rows, gated, shape, stream);
  }
  return defers;
}

void scaled_quantized_gemm(const LinearArgs& args, bool gated, Stream& stream) {
  const int num_k_blocks = num_parts(as_elements(args.weight).shape[1], kBlockK);
  LinearArgs product = args;
  product.next_norm = nullptr;
  swap_ab_gemm(product, gated,
               scaled_shape_for(args.weight.out_features(), num_k_blocks, args.weight.format,
                                device_clusters(stream.device)),
               stream);
}

}  // namespace attend::kernels::cuda::sm90
