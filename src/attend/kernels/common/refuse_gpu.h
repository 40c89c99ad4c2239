// What a build without CUDA answers who asks for a GPU's kernel.
#pragma once

#include <string_view>

#include "attend/base/error.h"
#include "attend/base/without_cuda.h"

namespace attend::kernels::cuda {

[[noreturn]] inline void refuse(std::string_view kernel) {
  fail(ErrorCode::kUnsupported, kernel, " on a GPU: ", kWithoutCuda);
}

}  // namespace attend::kernels::cuda
