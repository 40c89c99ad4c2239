#include "attend/kernels/common/build_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels {
namespace {

TEST(BuildInfo, NamesTheInstructionSetOfTheKernels) {
  EXPECT_EQ(build_info().instruction_set, cpu::to_string(cpu::detect_isa()));
}

TEST(BuildInfo, HasArchitecturesIfAndOnlyIfTheBuildSupportsGpus) {
  std::string error_text;
  try {
    attend::cuda::device_info({DeviceType::kCuda, 0});
  } catch (const Error& error) {
    error_text = error.what();
  }
  const bool without_cuda = error_text.find("without CUDA") != std::string::npos;
  EXPECT_EQ(build_info().cuda_architectures.empty(), without_cuda) << error_text;
  for (const std::string_view name : build_info().cuda_architectures)
    EXPECT_THAT(std::string(name), testing::MatchesRegex("[0-9]+[af]?(-real|-virtual)?|native"));
}

}  // namespace
}  // namespace attend::kernels
