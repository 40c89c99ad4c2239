#include "attend/kernels/cuda/sm90/dense.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/sm90/dense_kernel.h"
#include "attend/kernels/cuda/sm90/tensor_map.h"
#include "attend/kernels/cuda/view_params.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kMaxTiles = 1 << 14;

// Where CTAs that share a tile meet. Products of different streams may run at once, so each stream has its
// own.
struct Meeting {
  Tensor partials, counters;
};

// What a device is, and the meetings of its streams.
class DenseDevice {
 public:
  explicit DenseDevice(Device device) : device_(device) {
    const attend::cuda::DeviceInfo info = attend::cuda::device_info(device);
    can_run_ = info.major == 9 && info.minor == 0;
    num_sms_ = info.num_sms;
  }

  bool can_run() const { return can_run_; }
  int num_sms() const { return num_sms_; }

  const Meeting& meeting_of(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto [found, added] = meetings_.try_emplace(stream.handle);
    if (added) {
      const attend::cuda::CaptureTolerance tolerance;
      try {
        found->second = {attend::cuda::empty({2 * num_sms_, kMaxWarpgroups * kWarpgroupRows * kMaxTokens},
                                             DType::kF32, device_),
                         attend::cuda::zeros({kMaxTiles}, DType::kI32, device_)};
      } catch (...) {
        meetings_.erase(found);
        throw;
      }
    }
    return found->second;
  }

 private:
  Device device_;
  bool can_run_ = false;
  int num_sms_ = 0;
  std::mutex mutex_;
  std::map<void*, Meeting> meetings_;
};

// The state of each device, made when it is first used and never taken down: the driver may be gone by the
// time that static objects are.
DenseDevice& device_of(Device device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<DenseDevice>>;
  const std::lock_guard lock(mutex);
  auto& found = devices[device.index];
  if (found == nullptr) found = std::make_unique<DenseDevice>(device);
  return *found;
}

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// Of the weight's shape alone, as the order of the sums depends on it: small layers have twice as many
// tiles, so that fewer CTAs meet at each.
int warpgroups_for(int64_t num_weight_rows, int64_t in_features) {
  constexpr int64_t kSmallLayer = int64_t{1} << 23;  // elements
  return num_weight_rows * in_features < kSmallLayer ? 1 : kMaxWarpgroups;
}

int tokens_for(int64_t num_rows) {
  for (const int num_tokens : {32, 64, 128})
    if (num_rows <= num_tokens) return num_tokens;
  return kMaxTokens;
}

void launch(const LinearArgs& args, bool gated, Stream& stream) {
  const int64_t num_weight_rows = args.weight.shape[0], in_features = args.x.shape[1];
  const DenseShape shape{warpgroups_for(num_weight_rows, in_features), tokens_for(args.x.shape[0])};
  const int tile_rows = shape.num_warpgroups * kWarpgroupRows;
  DenseDevice& device = device_of(stream.device);
  const Meeting& meeting = device.meeting_of(stream);
  DenseShares shares{.num_tiles = ceil_div(num_weight_rows, tile_rows),
                     .num_chunks = ceil_div(in_features, kChunkElements),
                     .num_ctas = 0};
  const int64_t num_units = int64_t{shares.num_tiles} * shares.num_chunks;
  shares.num_ctas = static_cast<int>(std::min<int64_t>(device.num_sms(), num_units));
  const DenseParams params{
      .weight = map_row_pairs(args.weight, gated, tile_rows / kPairRows),
      .x = map_rows(args.x, shape.num_tokens),
      .bias = device_vector(args.bias),
      .out = args.out.data,
      .out_stride = args.out.strides[0],
      .partials = meeting.partials.as<float>(),
      .counters = meeting.counters.as<int32_t>(),
      .shares = shares,
      .num_rows = static_cast<int32_t>(args.x.shape[0]),
      .out_features = static_cast<int32_t>(args.out.shape[1]),
      .weight_slots = std::min(max_weight_slots(shape), ceil_div(num_units, shares.num_ctas)),
      .gated = gated,
      .accumulate = args.accumulate,
      .out_aligned = rows_aligned({&args.out}),
      .out_element = element_of(args.out.dtype)};
  const auto launch_dtype = args.x.dtype == DType::kBF16 ? launch_dense_bf16 : launch_dense_f16;
  launch_dtype(params, shape, stream.handle);
}

}  // namespace

bool takes(const LinearArgs& args, const Stream& stream) {
  return args.x.dtype != DType::kF32 && args.x.shape[1] % 8 == 0 && args.weight.shape[0] % kPairRows == 0 &&
         args.weight.shape[0] <= int64_t{kMaxTiles} * kWarpgroupRows &&
         rows_aligned({&args.x, &args.weight}) && device_of(stream.device).can_run();
}

void dense(const LinearArgs& args, bool gated, Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  const int64_t num_rows = args.x.shape[0];
  for (int64_t first = 0; first < num_rows; first += kMaxTokens) {
    const int64_t last = std::min<int64_t>(first + kMaxTokens, num_rows);
    LinearArgs rows = args;
    rows.x = args.x.slice(0, first, last);
    rows.out = args.out.slice(0, first, last);
    launch(rows, gated, stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
