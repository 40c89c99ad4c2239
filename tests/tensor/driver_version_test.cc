#include "attend/tensor/driver_version.h"

#include <gtest/gtest.h>

#include "tests/support/error_message.h"

namespace attend::cuda {
namespace {

constexpr std::string_view kGpu = "device cuda:1";

TEST(DriverVersion, RejectsADriverOlderThanTheToolkit) {
  EXPECT_EQ(
      testing_support::error_message(ErrorCode::kUnsupported, [] { require_driver(kGpu, 12040, 13000); }),
      "device cuda:1: the driver serves CUDA 12.4, attend was built with 13.0: needs a driver of CUDA 13.0 "
      "or later");
}

TEST(DriverVersion, AcceptsSameOrNewerMajorVersions) {
  for (const int driver : {13000, 13010, 14000}) EXPECT_NO_THROW(require_driver(kGpu, driver, 13020));
}

TEST(DriverVersion, ReportsAMissingDriver) {
  EXPECT_EQ(
      testing_support::error_message(ErrorCode::kUnsupported, [] { require_driver(kGpu, 0, 13000); }),
      "device cuda:1: this machine has no NVIDIA driver; attend was built with CUDA 13.0: needs a driver "
      "of CUDA 13.0 or later");
}

TEST(RequireGpu, NamesTheGpusOfTheMachine) {
  const auto error_of = [](int index, int num_gpus) {
    return testing_support::error_message(ErrorCode::kInvalidArgument, [&] {
      require_gpu({DeviceType::kCuda, index}, num_gpus, "--device");
    });
  };
  EXPECT_EQ(error_of(7, 1), "--device cuda:7: this machine has 1 GPU; expected cuda:0");
  EXPECT_EQ(error_of(4, 4), "--device cuda:4: this machine has 4 GPUs; expected cuda:0 to cuda:3");
  EXPECT_NO_THROW(require_gpu({DeviceType::kCuda, 3}, 4));
}

}  // namespace
}  // namespace attend::cuda
