// Loss of the GPU through a kernel's error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/support/error_message.h"

namespace attend::testing_cuda {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

// Exits with status 0 if everything after the failing kernel was rejected with the reason.
[[noreturn]] void lose_the_gpu() {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  DeviceArrays arrays(stream);
  const Tensor table = cuda::zeros({4, 64}, DType::kF32, kGpu), out = cuda::zeros({1, 64}, DType::kF32, kGpu);
  const std::vector<int32_t> far_outside{0x7fffffff};
  const View<const int32_t> ids(arrays.view(std::span<const int32_t>(far_outside)));
  kernels::embedding(ids, table, out, stream);

  const auto lost = HasSubstr("the GPU cannot be used by this process any more");
  EXPECT_THAT(error_message(ErrorCode::kDevice, [&] { cuda::synchronize(stream); }), lost);
  EXPECT_THAT(error_message(ErrorCode::kDevice, [&] { cuda::synchronize(stream); }), lost);
  EXPECT_THAT(error_message(ErrorCode::kDevice, [&] { kernels::embedding(ids, table, out, stream); }), lost);
  EXPECT_THAT(error_message(ErrorCode::kDevice, [] { cuda::empty({64}, DType::kF32, kGpu); }), lost);
  // exit() would run destructors that access the lost GPU.
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

class LostGpuDeathTest : public NeedsGpu {};

TEST_F(LostGpuDeathTest, IsReportedAndRejectsFurtherWork) {
  // Runs in a newly started process, since the CUDA driver does not support fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lose_the_gpu(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace attend::testing_cuda
