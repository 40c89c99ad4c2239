#include "attend/kernels/common/build_info.h"

#include <algorithm>

#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels {
namespace {

// Splits names separated by spaces: "90a-real 90-real".
std::vector<std::string_view> split(std::string_view names) {
  std::vector<std::string_view> parts;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    parts.push_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return parts;
}

}  // namespace

BuildInfo build_info() {
  return {.instruction_set = cpu::to_string(cpu::detect_isa()),
          .cuda_architectures = split(ATTEND_CUDA_ARCHITECTURES)};
}

}  // namespace attend::kernels
