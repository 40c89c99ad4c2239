#include "attend/kernels/comm/cuda/peer_ranks.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "attend/base/error.h"
#include "attend/kernels/comm/cuda/push_kernels.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/tensor/cuda.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {

// Memory of one device that its peers access. Only this pool is mapped on the peers, not all memory of the
// device.
class PeerMemory {
 public:
  PeerMemory(Device device, std::span<const Device> devices, size_t num_bytes) : device_(device) {
    const attend::cuda::DeviceScope scope(device);
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {.type = cudaMemLocationTypeDevice, .id = device.index};
    attend::cuda::check(cudaMemPoolCreate(&pool_, &props), "memory of ranks");
    for (const Device& peer : devices) {
      if (peer == device) continue;
      int can_access = 0;
      attend::cuda::check(cudaDeviceCanAccessPeer(&can_access, peer.index, device.index), "memory of ranks");
      if (can_access == 0)
        fail(ErrorCode::kUnsupported, peer, " cannot access the memory of ", device,
             ": ranks need GPUs that are connected by NVLink or share a PCIe root");
      const cudaMemAccessDesc access{.location = {.type = cudaMemLocationTypeDevice, .id = peer.index},
                                     .flags = cudaMemAccessFlagsProtReadWrite};
      attend::cuda::check(cudaMemPoolSetAccess(pool_, &access, 1), "memory of ranks");
    }
    attend::cuda::check(cudaMallocFromPoolAsync(&data_, num_bytes, pool_, nullptr), "memory of ranks");
    attend::cuda::check(cudaStreamSynchronize(nullptr), "memory of ranks");
  }
  ~PeerMemory() {
    const attend::cuda::DeviceScope scope(device_);
    if (data_ != nullptr) cudaFreeAsync(data_, nullptr);
    cudaStreamSynchronize(nullptr);
    cudaMemPoolDestroy(pool_);
  }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Device device_;
  cudaMemPool_t pool_ = nullptr;
  void* data_ = nullptr;
};

namespace {

// Writes to the first words of an empty slot from another device. With some IOMMUs such writes are lost.
void require_visible(std::byte* slot, Device owner, Device writer) {
  std::array<uint32_t, 4> seen{};
  {
    const attend::cuda::DeviceScope scope(owner);
    attend::cuda::check(cudaMemset(slot, 0, sizeof seen), "memory of ranks");
    attend::cuda::check(cudaDeviceSynchronize(), "memory of ranks");
  }
  {
    const attend::cuda::DeviceScope scope(writer);
    launch_fill_empty(reinterpret_cast<uint32_t*>(slot), std::ssize(seen), nullptr);
    attend::cuda::check(cudaDeviceSynchronize(), "memory of ranks");
  }
  const attend::cuda::DeviceScope scope(owner);
  attend::cuda::check(cudaMemcpy(seen.data(), slot, sizeof seen, cudaMemcpyDeviceToHost), "memory of ranks");
  if (std::ranges::count(seen, kEmptyWord) != std::ssize(seen))
    fail(ErrorCode::kUnsupported, owner, " does not see what ", writer,
         " writes to its memory: check the IOMMU and ACS settings of this machine");
}

void require_payload(const TensorView& x, Device device) {
  require(x.device == device, "x ", x, ": expected a tensor on ", device);
  require(x.dtype == DType::kF32 || x.dtype == DType::kF16 || x.dtype == DType::kBF16, "x ", x,
          ": expected float32, float16 or bfloat16");
}

}  // namespace

class PeerRank final : public Communicator {
 public:
  PeerRank(PeerSlots peers, Device device) : peers_(peers), device_(device) {}

  int rank() const override { return peers_.rank; }
  int num_ranks() const override { return peers_.num_ranks; }

  void all_reduce(const TensorView& x, Stream& stream) override { push_sum(x, {}, stream); }
  void all_reduce_add(const TensorView& x, const TensorView& sum, const DeferredScale& next,
                      Stream& stream) override {
    push_sum(x, {.sum = sum, .next = next}, stream);
  }

  void all_gather(const TensorView& x, const RankRanges& ranges, Stream& stream) override {
    require_payload(x, device_);
    require(x.rank == 2 && x.strides[1] == 1, "x ", x, ": expected a matrix with contiguous rows");
    // Ranges of rows are ranges of columns of a matrix with one row.
    const int64_t words = static_cast<int64_t>(size_of(x.dtype)), per_word = 4 / words;
    const bool by_rows = ranges.axis == 0;
    require(!by_rows || x.is_contiguous(), "x ", x, ": expected a contiguous matrix");
    PushColumnsParams params{.peers = peers_,
                             .x = static_cast<uint32_t*>(x.data),
                             .half = per_word == 2,
                             .num_rows = by_rows ? 1 : x.shape[0],
                             .row_stride = x.strides[0] / per_word,
                             .bounds = {}};
    int64_t widest = 1;
    for (int r = 0; r <= num_ranks(); ++r) {
      const int64_t bound = ranges.bounds[static_cast<size_t>(r)] * (by_rows ? x.shape[1] : 1);
      require(bound % per_word == 0, "bounds: ", bound, ": expected multiples of ", per_word);
      params.bounds[r] = bound / per_word;
      if (r == 0) continue;
      const int64_t width = params.bounds[r] - params.bounds[r - 1];
      require(width > 0, "bounds: rank ", r - 1, " has nothing; expected a range for every rank");
      widest = std::max(widest, width);
    }
    require((x.strides[0] % per_word) == 0, "x ", x, ": expected rows of whole words");
    const int64_t slot_words = peers_.slot_bytes / 4;
    require(widest <= slot_words, "x ", x, ": a range of ", widest * 4, " bytes; slots have ",
            peers_.slot_bytes);
    const attend::cuda::DeviceScope scope(device_);
    for (int64_t row = 0, total = params.num_rows; row < total; row += params.num_rows) {
      params.x = static_cast<uint32_t*>(x.data) + row * params.row_stride;
      params.num_rows = std::min(total - row, slot_words / widest);
      launch_push_columns(params, stream.handle);
    }
  }

  // The rank's range is also correct after an all-reduce.
  void reduce_scatter(const TensorView& x, const RankRanges&, Stream& stream) override {
    push_sum(x, {}, stream);
  }

  void broadcast(const TensorView& x, int root, Stream& stream) override {
    require_payload(x, device_);
    const attend::cuda::DeviceScope scope(device_);
    if (rank() != root)
      attend::cuda::check(cudaMemsetAsync(x.data, 0, x.num_bytes(), static_cast<cudaStream_t>(stream.handle)),
                          "broadcast");
    push_sum(x, {}, stream);
  }

 private:
  struct Addition {
    TensorView sum = {};
    DeferredScale next = {};
  };

  void push_sum(const TensorView& x, const Addition& addition, Stream& stream) {
    require_payload(x, device_);
    const auto is_aligned = [](const TensorView& view) {
      return view.is_contiguous() && reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
    };
    require(is_aligned(x) && x.num_bytes() % 16 == 0, "x ", x,
            ": expected a contiguous tensor of whole vectors of 16 bytes");
    const TensorView& sum = addition.sum;
    require(sum.empty() || (is_aligned(sum) && sum.dtype == x.dtype && sum.num_bytes() == x.num_bytes()),
            "sum ", sum, ": expected a tensor like x, ", x);
    const DeferredScale& next = addition.next;
    const int64_t dim = x.shape[static_cast<size_t>(x.rank) - 1];
    require(next.weight.empty() || (dim % 16 == 0 && is_aligned(next.scaled)), "scaled ", next.scaled,
            ": expected rows of a multiple of 16 elements");
    const int64_t per_vector = 16 / static_cast<int64_t>(size_of(x.dtype));
    const auto num_vectors = static_cast<int64_t>(x.num_bytes() / 16);
    // Whole rows, so that sums of squares stay in one launch.
    int64_t most = peers_.slot_bytes / 16;
    if (!next.weight.empty()) {
      const int64_t row = dim / per_vector;
      require(row <= most, "x ", x, ": slots have ", peers_.slot_bytes, " bytes, expected those of a row");
      most = most / row * row;
    }
    const attend::cuda::DeviceScope scope(device_);
    const auto at = [](const TensorView& view, int64_t vector) -> void* {
      return view.empty() ? nullptr : static_cast<std::byte*>(view.data) + vector * 16;
    };
    for (int64_t first = 0; first < num_vectors; first += most) {
      PushSumParams params{.peers = peers_,
                           .x = at(x, first),
                           .element = to_element_type(x.dtype),
                           .num_vectors = std::min(most, num_vectors - first),
                           .sum = at(sum, first),
                           .weight = {},
                           .scaled = nullptr,
                           .squares = nullptr,
                           .dim = dim};
      if (!next.weight.empty()) {
        params.weight = {next.weight.data, to_element_type(next.weight.dtype)};
        params.scaled = at(next.scaled, first);
        params.squares = next.partial_squares.as<float>() + first * per_vector / 16;
      }
      launch_push_sum(params, stream.handle);
    }
  }

  PeerSlots peers_;
  Device device_;
};

struct PeerRanks::Impl {
  std::vector<std::unique_ptr<PeerMemory>> memories;  // by rank: slots
  std::vector<Tensor> counters;                       // by rank: epoch, number of finished CTAs
  Tensor stop;                                        // in host memory
  std::vector<std::unique_ptr<PeerRank>> ranks;
};

PeerRanks::PeerRanks(std::span<const Device> devices, size_t slot_bytes, std::chrono::milliseconds timeout)
    : impl_(std::make_unique<Impl>()) {
  const auto num_ranks = static_cast<int>(devices.size());
  require(num_ranks >= 1 && num_ranks <= kMaxPeerRanks, num_ranks, " ranks on GPUs: expected 1 to ",
          kMaxPeerRanks);
  slot_bytes = (slot_bytes + 255) / 256 * 256;
  const size_t num_bytes = 2 * devices.size() * slot_bytes;
  PeerSlots shared{};
  shared.slot_bytes = static_cast<int64_t>(slot_bytes);
  shared.num_ranks = num_ranks;
  shared.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  impl_->stop = attend::cuda::empty_pinned({1}, DType::kI32, devices.front());
  *impl_->stop.view().as<int32_t>() = 0;
  shared.stop = static_cast<uint32_t*>(impl_->stop.view().data);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Device device = devices[static_cast<size_t>(rank)];
    impl_->memories.push_back(std::make_unique<PeerMemory>(device, devices, num_bytes));
    shared.slots[rank] = impl_->memories.back()->data();
    const attend::cuda::DeviceScope scope(device);
    launch_fill_empty(reinterpret_cast<uint32_t*>(shared.slots[rank]), static_cast<int64_t>(num_bytes / 4),
                      nullptr);
    attend::cuda::check(cudaStreamSynchronize(nullptr), "memory of ranks");
    impl_->counters.push_back(attend::cuda::zeros({2}, DType::kI32, device));
  }
  for (int owner = 0; owner < num_ranks; ++owner)
    for (int writer = 0; writer < num_ranks; ++writer)
      if (owner != writer)
        require_visible(shared.slots[owner], devices[static_cast<size_t>(owner)],
                        devices[static_cast<size_t>(writer)]);
  for (int rank = 0; rank < num_ranks; ++rank) {
    PeerSlots own = shared;
    own.rank = rank;
    own.epoch = static_cast<uint32_t*>(impl_->counters[static_cast<size_t>(rank)].view().data);
    own.num_done = own.epoch + 1;
    impl_->ranks.push_back(std::make_unique<PeerRank>(own, devices[static_cast<size_t>(rank)]));
  }
}

PeerRanks::~PeerRanks() = default;

Communicator& PeerRanks::communicator(int rank) { return *impl_->ranks[static_cast<size_t>(rank)]; }

void PeerRanks::stop() { *static_cast<volatile int32_t*>(impl_->stop.view().as<int32_t>()) = 1; }

bool PeerRanks::stopped() const {
  return *static_cast<volatile const int32_t*>(impl_->stop.view().as<int32_t>()) != 0;
}

}  // namespace attend::kernels::cuda
