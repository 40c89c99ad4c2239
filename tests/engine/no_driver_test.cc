// On a machine without an NVIDIA driver, everything that would use a GPU reports the missing driver. Builds
// without CUDA report that instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "attend/engine/engine.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing_support::kGpu;

template <class Fn>
std::string error_text(Fn&& fn) {
  return testing_support::error_message(ErrorCode::kUnsupported, fn);
}

class NoDriver : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::device_info(kGpu);
      GTEST_SKIP() << "this machine has a GPU";
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) GTEST_SKIP() << "this machine has a driver";
      const std::string message = error.what();
      ASSERT_THAT(message, StartsWith("device cuda:0: "));
      reason_ = message.substr(std::string("device cuda:0: ").size());
    }
  }

  std::string reason_;  // error message of the missing device
};

TEST_F(NoDriver, ErrorNamesTheDriverOrTheBuild) {
  EXPECT_THAT(
      reason_,
      testing::AnyOf(StartsWith("this machine has no NVIDIA driver; attend was built with CUDA "),
                     AllOf(StartsWith("this build was made without CUDA"), HasSubstr("-DATTEND_CUDA=ON"))));
}

TEST_F(NoDriver, IsReportedByMemoryStreamsAndEngines) {
  const std::string expected = "device cuda:0: " + reason_;
  EXPECT_EQ(error_text([] { cuda::empty({4}, DType::kF32, kGpu); }), expected);
  EXPECT_EQ(error_text([] { Tensor::empty({4}, DType::kF32, kGpu); }), expected);
  EXPECT_EQ(error_text([] { Tensor::zeros({4}, DType::kF32, kGpu); }), expected);
  EXPECT_EQ(error_text([] { cuda::empty_pinned({4}, DType::kF32, kGpu); }), expected);
  EXPECT_EQ(error_text([] { cuda::zeros({4}, DType::kF32, kGpu); }), expected);
  EXPECT_EQ(error_text([] { cuda::copy_to(Tensor::zeros({4}, DType::kF32), kGpu); }), expected);
  EXPECT_EQ(error_text([] { cuda::OwnedStream stream(kGpu); }), expected);
  EXPECT_EQ(error_text([] { cuda::Event event(kGpu); }), expected);
  EXPECT_EQ(error_text([] { cuda::synchronize(Stream{kGpu, nullptr}); }), expected);
  EXPECT_EQ(error_text([] {
              EngineConfig config;
              config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
              config.device = kGpu;
              Engine engine(config);
            }),
            expected);
}

TEST_F(NoDriver, IsReportedByPlansAndKernels) {
  const kernels::AttentionPlanLimits limits{.max_reqs = 1,
                                            .max_tokens = 1,
                                            .max_kv_tokens = 16,
                                            .num_q_heads = 1,
                                            .num_kv_heads = 1,
                                            .head_dim_v = 64};
  EXPECT_THAT(error_text([&] { kernels::AttentionPlan(limits, kGpu); }), EndsWith(": " + reason_));
  kernels::AttentionPlanLimits with_workers = limits;
  with_workers.num_workers = 4;
  EXPECT_THAT(error_text([&] { kernels::AttentionPlan(with_workers, kGpu); }), EndsWith(": " + reason_));

  // A rejected call does not read this memory.
  std::vector<float> memory(64);
  const std::vector<int32_t> slots{0};
  const auto view = [&](std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(memory.data(), DType::kF32, shape, kGpu);
  };
  Stream stream{kGpu, nullptr};
  EXPECT_THAT(error_text([&] {
                kernels::store_kv(
                    {.k = view({1, 1, 64}),
                     .v = view({1, 1, 64}),
                     .to = {.k = view({1, 1, 1, 64}), .v = view({1, 1, 1, 64}), .slots = slots}},
                    stream);
              }),
              EndsWith(": " + reason_));
}

}  // namespace
}  // namespace attend
