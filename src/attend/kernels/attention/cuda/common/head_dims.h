// Head dims that a kernel has an instance for.
#pragma once

namespace attend::kernels::cuda {

// Of K and of V: an instance takes those up to these.
struct HeadDims {
  int qk = 0, v = 0;
  bool operator==(const HeadDims&) const = default;
};

}  // namespace attend::kernels::cuda
