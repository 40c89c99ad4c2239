// StagingRing: the small host arrays of a step on their way to the device, with one copy.
#pragma once

#include <cstddef>
#include <vector>

#include "attend/tensor/cuda.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Device memory at a fixed address and, on a GPU, page-locked host slots that take turns in filling it: the
// host writes the next step's slot while the device still works on the last one. On the CPU the one slot is
// the device memory, and upload() has nothing to do.
class StagingRing {
 public:
  StagingRing(size_t num_bytes, Device device);

  // The next slot, to be filled from its front; waits until the slot's last copy is done. [num_bytes]
  View<std::byte> next_slot();
  // Copies the first `num_bytes` of the slot that next_slot() gave last, in stream order.
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
  std::vector<Slot> slots_;  // none on the CPU
  size_t current_ = 0;
};

}  // namespace attend
