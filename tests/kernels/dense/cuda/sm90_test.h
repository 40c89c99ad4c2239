// Fixture of tests of sm_90a kernels.
#pragma once

#include <gtest/gtest.h>

#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {

// Skips if no GPU runs sm_90a code, which requires compute capability 9.0.
class Sm90Test : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    const auto info = cuda::device_info(kGpu);
    if (info.major != 9 || info.minor != 0) GTEST_SKIP() << info.name << ": for compute capability 9.0";
  }
};

}  // namespace attend::testing_cuda
