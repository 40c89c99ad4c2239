// Arena: one block of memory, allocated from front to back. On the host it requests 2 MiB pages, which reduce
// TLB misses when a KV pool or weights are read sequentially.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "attend/tensor/tensor.h"

namespace attend {

// Not thread-safe. Tensors allocated from an arena keep its memory alive.
class Arena {
 public:
  // Maps `num_bytes` zeroed bytes. The host allocates pages when they are touched, a GPU immediately. Throws
  // Error(kOutOfMemory) before mapping if the device has less memory available: "<owner>: needed N bytes,
  // free M".
  explicit Arena(size_t num_bytes, std::string_view owner = "arena", Device device = {});

  // Returns a zeroed, 64-byte aligned tensor. Throws Error(kOutOfMemory) with needed and free bytes, without
  // effect, if the arena is full.
  Tensor allocate(std::initializer_list<int64_t> shape, DType dtype);

  size_t size_bytes() const { return size_bytes_; }
  size_t used_bytes() const { return used_bytes_; }
  // Returns the bytes that allocate() uses for a tensor of `bytes` bytes.
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

// Returns the bytes that can still be allocated on a device: available_host_bytes(), or free memory reported
// by the GPU.
size_t available_bytes(Device device);

// Returns the bytes of host memory that can still be allocated: the minimum of MemAvailable, the limits of
// this process's control groups and its own limits (ulimit -v, -d). File pages count as available, as in
// MemAvailable.
size_t available_host_bytes();

}  // namespace attend
