#include "attend/kernels/common/fill_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using kernels::fill_random;
using kernels::RandomNormal;

Tensor filled(DType dtype, int64_t count, const RandomNormal& numbers) {
  const Tensor tensor = Tensor::empty({count}, dtype);
  Stream cpu;
  fill_random(tensor, numbers, cpu);
  return tensor;
}

TEST(FillRandom, ValuesDependOnTheirIndexOnly) {
  constexpr int64_t kCount = 200'000;  // more than one task
  const Tensor all = filled(DType::kF32, kCount, {.first = 7, .mean = 1.0f, .deviation = 0.5f});
  const Tensor tail = filled(DType::kF32, 100, {.first = 7 + kCount - 100, .mean = 1.0f, .deviation = 0.5f});
  EXPECT_TRUE(std::ranges::equal(all.span<float>().last(100), tail.span<float>()));
}

TEST(FillRandom, RejectsATensorWithGaps) {
  const Tensor tensor = Tensor::empty({4, 8}, DType::kF32);
  Stream cpu;
  EXPECT_THAT(testing_support::error_message(ErrorCode::kInvalidArgument,
                                             [&] { fill_random(tensor.view().slice(1, 0, 4), {}, cpu); }),
              testing::HasSubstr("out"));
}

TEST(FillRandom, HasTheSameBitsOnAGpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  constexpr Device kGpu{DeviceType::kCuda, 0};
  constexpr int64_t kCount = 1'000'003;
  // With the second distribution, a sum that is not fused with its product rounds twice.
  for (const RandomNormal& numbers : {RandomNormal{.first = 1ull << 40, .deviation = 0.02f},
                                      RandomNormal{.mean = 1.0f, .deviation = 0.02f}})
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Tensor device = cuda::empty({kCount}, dtype, kGpu), back = Tensor::empty({kCount}, dtype);
      cuda::OwnedStream stream(kGpu);
      fill_random(device, numbers, stream.get());
      cuda::copy(device, back, stream.get());
      cuda::synchronize(stream.get());
      const Tensor host = filled(dtype, kCount, numbers);
      EXPECT_EQ(std::memcmp(back.view().data, host.view().data, host.view().num_bytes()), 0) << dtype;
    }
}

}  // namespace
}  // namespace attend
