// TMA copies: PTX ISA, "cp.async.bulk" and "cp.async.bulk.tensor" (sm_90). `map` is the address of a
// CUtensorMap in the parameters of a kernel.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/global_memory.cuh"

namespace attend::kernels::cuda::ptx {

// Copies to shared memory. The number of bytes and both addresses are multiples of 16. `barrier` counts the
// bytes. "cp.async.bulk".
__device__ inline void cp_async_bulk(uint32_t to_shared, const void* from, uint32_t num_bytes,
                                     uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
          to_shared),
      "l"(from), "r"(num_bytes), "r"(barrier)
      : "memory");
}

// Prefetches a tensor map before the first copy. "prefetch.tensormap".
__device__ inline void prefetch_tensormap(const void* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// Copies the box at these coordinates, innermost first. `barrier` counts its bytes, including those outside
// of the tensor, which are zeros. "cp.async.bulk.tensor.2d".
__device__ inline void cp_async_bulk_tensor(uint32_t to_shared, const void* map, int x, int y,
                                            uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;\n" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}
// Copies to the same address in every CTA of the cluster with a bit in `ranks`; the same barrier of each CTA
// counts the bytes. "cp.async.bulk.tensor.2d .multicast::cluster".
__device__ inline void cp_async_bulk_tensor_multicast(uint32_t to_shared, const void* map, int x, int y,
                                                      uint32_t barrier, uint32_t ranks, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;\n" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(static_cast<uint16_t>(ranks)), "l"(policy)
      : "memory");
}
// Three-dimensional overload. "cp.async.bulk.tensor.3d".
__device__ inline void cp_async_bulk_tensor(uint32_t to_shared, const void* map, int x, int y, int z,
                                            uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;\n" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
      : "memory");
}
// Four-dimensional overload. "cp.async.bulk.tensor.4d".
__device__ inline void cp_async_bulk_tensor(uint32_t to_shared, const void* map, int x, int y, int z, int w,
                                            uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;\n" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "l"(policy)
      : "memory");
}

// Four-dimensional overload. "cp.async.bulk.tensor.4d .multicast::cluster".
__device__ inline void cp_async_bulk_tensor_multicast(uint32_t to_shared, const void* map, int x, int y,
                                                      int z, int w, uint32_t barrier, uint32_t ranks,
                                                      uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;\n" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(static_cast<uint16_t>(ranks)), "l"(policy)
      : "memory");
}

// Copies from shared memory to the box at these coordinates. Elements outside of the tensor are not written.
// "cp.async.bulk.tensor.3d .global.shared::cta .bulk_group".
__device__ inline void cp_async_bulk_tensor_store(const void* map, int x, int y, int z,
                                                  uint32_t from_shared) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n" ::"l"(map),
      "r"(x), "r"(y), "r"(z), "r"(from_shared)
      : "memory");
}
// Ends a group of this thread's stores. "cp.async.bulk.commit_group".
__device__ inline void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
// Waits until all groups of this thread's stores have read shared memory. "cp.async.bulk.wait_group.read".
__device__ inline void cp_async_bulk_wait_until_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

}  // namespace attend::kernels::cuda::ptx
