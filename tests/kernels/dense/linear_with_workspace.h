// linear() on the CPU with the workspace that its fastest kernels require.
#pragma once

#include <cstring>

#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/tensor/arena.h"

namespace attend::testing_support {

inline void linear_with_workspace(kernels::LinearArgs args, kernels::cpu::Isa isa) {
  const size_t num_bytes =
      kernels::cpu::linear_workspace_bytes(args.x.shape[0], args.x.shape[1], isa, args.weight.format);
  Arena arena(num_bytes + 64);
  const Tensor workspace = arena.allocate({static_cast<int64_t>(num_bytes)}, DType::kU8);
  // Filled with NaN, so that reads of unwritten memory are detected.
  std::memset(workspace.view().data, 0xff, num_bytes);
  args.workspace = {static_cast<std::byte*>(workspace.view().data), num_bytes};
  kernels::cpu::linear(args, isa);
}

}  // namespace attend::testing_support
