// A queue of device work.
#pragma once

#include "attend/tensor/device.h"

#pragma GCC visibility push(default)
namespace attend {

// On the CPU every operation is done when its call returns, and `handle` is null. On a GPU `handle` is the
// cudaStream_t; the caller owns it. Copyable; does not own.
struct Stream {
  Device device;
  void* handle = nullptr;
};

}  // namespace attend
#pragma GCC visibility pop
