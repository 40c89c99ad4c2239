#include <gtest/gtest.h>

#include "attend/attention/resolver.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::kGpu;

cuda::DeviceInfo gpu(const char* name, int major, int minor) {
  return {.name = name, .major = major, .minor = minor, .num_sms = 40};
}

TEST(Hardware, DetectsEveryArchitectureFromAmpere) {
  EXPECT_EQ(make_hardware(gpu("A100", 8, 0), kGpu).architecture, Architecture::kAmpere);
  EXPECT_EQ(make_hardware(gpu("A10", 8, 6), kGpu).architecture, Architecture::kAmpere);
  EXPECT_EQ(make_hardware(gpu("L4", 8, 9), kGpu).architecture, Architecture::kAda);
  EXPECT_EQ(make_hardware(gpu("H200", 9, 0), kGpu).architecture, Architecture::kHopper);
  EXPECT_EQ(make_hardware(gpu("B200", 10, 0), kGpu).architecture, Architecture::kBlackwell);
  EXPECT_EQ(make_hardware(gpu("RTX 5090", 12, 0), kGpu).architecture, Architecture::kBlackwellGeforce);
}

TEST(Hardware, RejectsAGpuOlderThanAmpere) {
  for (const auto& [name, major, minor] : {std::tuple{"T4", 7, 5}, {"V100", 7, 0}, {"P100", 6, 0}})
    EXPECT_EQ(testing_support::error_message(ErrorCode::kUnsupported,
                                             [&] { make_hardware(gpu(name, major, minor), kGpu); }),
              std::string("device cuda:0: ") + name + " has compute capability " + std::to_string(major) +
                  "." + std::to_string(minor) + ": attend has kernels for 8.0 to 12");
}

}  // namespace
}  // namespace attend
