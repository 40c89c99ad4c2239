// StagingRing: copies the small host arrays of a step to the device with one copy.
#pragma once

#include <cstddef>
#include <vector>

#include "attend/tensor/cuda.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Device memory at a fixed address and, on a GPU, alternating page-locked host slots: the host writes the
// next step's slot while the device reads the last one. On the CPU the single slot is the device memory, and
// upload() has no effect.
class StagingRing {
 public:
  StagingRing(size_t num_bytes, Device device);

  // Returns the next slot, to be filled from its front. Waits until the slot's last copy is complete.
  // [num_bytes]
  View<std::byte> next_slot();
  // Copies the first `num_bytes` of the slot that next_slot() returned last, in stream order.
  void upload(size_t num_bytes, Stream& stream);

  // u8 [num_bytes] on the device.
  const TensorView& device_bytes() const { return device_bytes_.view(); }

 private:
  struct Slot {
    Tensor bytes;
    cuda::Event copied;
    bool in_flight = false;
  };

  Tensor device_bytes_;
  std::vector<Slot> slots_;  // empty on the CPU
  size_t current_ = 0;
};

}  // namespace attend
