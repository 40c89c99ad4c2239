// PeerRanks: communicators of ranks on the GPUs of one host, which write to each other's memory
// (push_kernels.cu).
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "attend/tensor/communicator.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// Sums and gathers of float32, float16 and bfloat16 with elements of -0 as +0, in launches that CUDA graphs
// may contain. NVLink multicast is not used. A thread per rank queues operations. While a kernel waits for a
// peer, the driver must not wait for the kernel's device: load all kernels first (CUDA_MODULE_LOADING=EAGER),
// and allocate no memory.
class PeerRanks {
 public:
  // Devices may be equal, for tests. `slot_bytes`: bytes that an operation passes to a peer at once; larger
  // operations are several launches. Each device allocates 2 * ranks * slot_bytes. `timeout`: longest time
  // that a kernel waits. Throws Error(kUnsupported) if a device cannot access the memory of another one, or
  // does not see what it writes.
  PeerRanks(std::span<const Device> devices, size_t slot_bytes, std::chrono::milliseconds timeout);
  ~PeerRanks();
  PeerRanks(const PeerRanks&) = delete;
  PeerRanks& operator=(const PeerRanks&) = delete;

  Communicator& communicator(int rank);

  // Ends the waits of all kernels. Results are undefined afterwards. Thread-safe.
  void stop();
  // Returns whether a wait has ended without data: after stop(), or because a peer did not arrive in time.
  bool stopped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend::kernels::cuda
