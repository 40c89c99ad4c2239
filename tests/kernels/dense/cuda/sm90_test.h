// What tests of kernels for sm_90a have in common.
#pragma once

#include <gtest/gtest.h>

#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {

// Skips where no GPU runs sm_90a's code, which GPUs of compute capability 9.0 alone do.
class Sm90Test : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    const auto info = cuda::device_info(kGpu);
    if (info.major != 9 || info.minor != 0) GTEST_SKIP() << info.name << ": for compute capability 9.0";
  }
};

}  // namespace attend::testing_cuda
