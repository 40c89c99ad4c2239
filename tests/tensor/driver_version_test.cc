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

}  // namespace
}  // namespace attend::cuda
