// Hardware that the kernels of this build can run on.
#pragma once

#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace attend::kernels {

struct BuildInfo {
  // Best instruction set of the CPU kernels on this machine: portable, avx2, avx512, avx512-bf16 or amx.
  std::string_view instruction_set;
  // Architectures of the GPU kernels, in CMake's spelling: "90-real", "90-virtual". Empty without GPU
  // kernels.
  std::vector<std::string_view> cuda_architectures;
};

BuildInfo build_info();

}  // namespace attend::kernels
#pragma GCC visibility pop
