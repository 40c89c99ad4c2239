#include "attend/tensor/staging_ring.h"

namespace attend {
namespace {

// One slot that the device may still read, and one that the host fills.
constexpr int kNumSlots = 2;

}  // namespace

StagingRing::StagingRing(size_t num_bytes, Device device) {
  const auto size = static_cast<int64_t>(num_bytes);
  if (device.type == DeviceType::kCpu) {
    device_bytes_ = Tensor::zeros({size}, DType::kU8);
    return;
  }
  device_bytes_ = cuda::zeros({size}, DType::kU8, device);
  for (int i = 0; i < kNumSlots; ++i)
    slots_.push_back(
        {.bytes = cuda::empty_pinned({size}, DType::kU8, device), .copied = cuda::Event(device)});
}

View<std::byte> StagingRing::next_slot() {
  const auto bytes_of = [](const Tensor& tensor) {
    return View<std::byte>(static_cast<std::byte*>(tensor.view().data), tensor.view().num_bytes());
  };
  if (slots_.empty()) return bytes_of(device_bytes_);
  current_ = (current_ + 1) % slots_.size();
  Slot& slot = slots_[current_];
  if (slot.in_flight) slot.copied.synchronize();
  slot.in_flight = false;
  return bytes_of(slot.bytes);
}

void StagingRing::upload(size_t num_bytes, Stream& stream) {
  require(num_bytes <= device_bytes_.view().num_bytes(), "upload of ", num_bytes, " bytes: the ring has ",
          device_bytes_.view().num_bytes());
  if (slots_.empty()) return;
  Slot& slot = slots_[current_];
  const auto size = static_cast<int64_t>(num_bytes);
  cuda::copy(slot.bytes.view().slice(0, 0, size), device_bytes_.view().slice(0, 0, size), stream);
  slot.copied.record(stream);
  slot.in_flight = true;
}

}  // namespace attend
