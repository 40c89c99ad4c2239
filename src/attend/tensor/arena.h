// One block of host memory, handed out from front to back. Asks for 2 MiB pages, which is what a KV pool or a
// set of weights wants: fewer TLB misses while it is read from end to end.
#pragma once

#include <cstddef>
#include <memory>

#include "attend/tensor/tensor.h"

namespace attend {

// Not thread-safe. Tensors made from an arena keep its memory alive.
class Arena {
 public:
  // Maps `num_bytes` zeroed bytes (the operating system hands out pages as they are touched). Throws
  // Error(kOutOfMemory) with the bytes wanted and the bytes the machine has available.
  explicit Arena(size_t num_bytes);

  // Zeroed, 64-byte aligned. Throws Error(kOutOfMemory) with needed and free bytes when the arena is full.
  Tensor allocate(std::initializer_list<int64_t> shape, DType dtype);

  size_t size_bytes() const { return size_bytes_; }
  size_t used_bytes() const { return used_bytes_; }
  // Bytes that allocate() takes for a tensor of `bytes` bytes.
  static size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::shared_ptr<void> memory_;
  size_t size_bytes_ = 0;
  size_t used_bytes_ = 0;
};

// Bytes of physical memory that the operating system could still give (MemAvailable, or the cgroup's rest
// when that is less).
size_t available_host_bytes();

}  // namespace attend
