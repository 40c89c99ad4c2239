// Stream: queue of device work.
#pragma once

#include "attend/tensor/device.h"

#pragma GCC visibility push(default)
namespace attend {

// On the CPU every operation is complete when its call returns, and `handle` is null. On a GPU `handle` is
// the cudaStream_t, which the caller owns. Copyable; does not own.
struct Stream {
  Device device;
  void* handle = nullptr;
};

}  // namespace attend
#pragma GCC visibility pop
