// Tests that skip on a machine without a GPU.
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

}  // namespace attend::testing_cuda
