// What the kernels of this build can run on.
#pragma once

#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace attend::kernels {

struct BuildInfo {
  // The best that the CPU kernels have for this machine: portable, avx2, avx512, avx512-bf16 or amx.
  std::string_view instruction_set;
  // What the GPU kernels were built for, as CMake calls it: "90-real", "90-virtual". Empty: no GPU kernels.
  std::vector<std::string_view> cuda_architectures;
};

BuildInfo build_info();

}  // namespace attend::kernels
#pragma GCC visibility pop
