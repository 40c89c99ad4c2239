// One block of memory, handed out from front to back. On the host it asks for 2 MiB pages, which is what a KV
// pool or a set of weights wants: fewer TLB misses while it is read from end to end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "attend/tensor/tensor.h"

namespace attend {

// Not thread-safe. Tensors made from an arena keep its memory alive.
class Arena {
 public:
  // Maps `num_bytes` zeroed bytes (the operating system hands out pages as they are touched; a GPU all of
  // them at once). Throws Error(kOutOfMemory), before anything is mapped, when the device has less available:
  // "<owner>: needed N bytes, free M".
  explicit Arena(size_t num_bytes, std::string_view owner = "arena", Device device = {});

  // Zeroed, 64-byte aligned. Throws Error(kOutOfMemory) with needed and free bytes, changing nothing, when
  // the arena is too full.
  Tensor allocate(std::initializer_list<int64_t> shape, DType dtype);

  size_t size_bytes() const { return size_bytes_; }
  size_t used_bytes() const { return used_bytes_; }
  // Bytes that allocate() takes for a tensor of `bytes` bytes.
  static size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  void map_host(size_t num_bytes);
  void map_device(size_t num_bytes);

  std::string owner_;
  Device device_;
  std::shared_ptr<void> memory_;
  size_t size_bytes_ = 0;
  size_t used_bytes_ = 0;
};

// Bytes that could still be allocated on a device: available_host_bytes() or what the GPU says.
size_t available_bytes(Device device);

// Bytes of memory that the operating system could still give: MemAvailable, or what the control groups around
// this process or its own limits (ulimit -v, -d) leave when that is less. File pages count as available, as
// they do in MemAvailable.
size_t available_host_bytes();

}  // namespace attend
