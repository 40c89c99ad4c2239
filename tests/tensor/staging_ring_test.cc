#include "attend/tensor/staging_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::error_message;
using testing_support::kGpu;

class StagingRingOn : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    device_.type = GetParam();
    if (device_ == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    if (device_ == kGpu) gpu_stream_.emplace(kGpu);
    stream_ = gpu_stream_ ? gpu_stream_->get() : Stream{};
  }

  std::vector<uint8_t> bytes_on_device(const StagingRing& ring) {
    const TensorView& from = ring.device_bytes();
    std::vector<uint8_t> bytes(from.num_bytes());
    const TensorView to = TensorView::contiguous(bytes.data(), DType::kU8, {std::ssize(bytes)});
    if (gpu_stream_) {
      cuda::copy(from, to, stream_);
      cuda::synchronize(stream_);
    } else {
      std::memcpy(to.data, from.data, bytes.size());
    }
    return bytes;
  }

  Device device_;
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
};

TEST_P(StagingRingOn, UploadsToAFixedAddress) {
  StagingRing ring(1 << 20, device_);
  const void* const address = ring.device_bytes().data;
  // Runs more steps than slots without synchronization: a slot may be refilled only after its copy has
  // finished.
  for (int step = 0; step < 20; ++step) {
    const View<std::byte> slot = ring.next_slot();
    std::memset(slot.data(), step, slot.size());
    ring.upload(slot.size(), stream_);
    if (step % 7 != 6) continue;
    EXPECT_EQ(bytes_on_device(ring), std::vector<uint8_t>(slot.size(), static_cast<uint8_t>(step)));
  }
  EXPECT_EQ(ring.device_bytes().data, address);
}

TEST_P(StagingRingOn, RejectsMoreBytesThanASlotHas) {
  StagingRing ring(64, device_);
  ring.next_slot();
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { ring.upload(65, stream_); }),
            "upload of 65 bytes: the ring has 64");
}

INSTANTIATE_TEST_SUITE_P(Devices, StagingRingOn, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& test) { return test.param == DeviceType::kCpu ? "cpu" : "gpu"; });

}  // namespace
}  // namespace attend
