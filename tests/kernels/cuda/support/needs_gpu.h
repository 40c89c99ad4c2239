// Fixtures that skip their tests without a GPU, or without a Hopper GPU.
#pragma once

#include <gtest/gtest.h>

#include "attend/tensor/cuda.h"

namespace attend::testing_cuda {

class NeedsGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
};

// Requires that GPU 0 is a Hopper GPU.
class NeedsHopper : public NeedsGpu {
 protected:
  void SetUp() override {
    NeedsGpu::SetUp();
    if (IsSkipped()) return;
    const cuda::DeviceInfo info = cuda::device_info({DeviceType::kCuda, 0});
    if (info.major != 9 || info.minor != 0) GTEST_SKIP() << "not a GPU of compute capability 9.0";
  }
};

}  // namespace attend::testing_cuda
