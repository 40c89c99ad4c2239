// DeviceSlotMap: slots of the window half on the device of one executor: the host's own map on the CPU, a
// copy on a GPU. Like DeviceRows, it has its own cursor for changes on the host.
#pragma once

#include "attend/kv/storage/step_column.h"
#include "attend/kv/window/swa_slots.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Map from token slots to slots of the window half. Its column has the window slots of a step's new tokens;
// -1: not stored.
class DeviceSlotMap final : public StepColumn {
 public:
  // `slots` must outlive this object. Throws Error(kOutOfMemory).
  DeviceSlotMap(const SwaSlots& slots, Device device);

  // int32 [slots of the full half] on the device: slot of the window half.
  const TensorView& slot_map() const { return slot_map_; }

  // On a GPU: queues copies of the entries of pages that got a window page from SwaSlots::replace() since the
  // last call. Does nothing on the CPU.
  void upload_moved(Stream& stream);
  void fill(const HostStep& step, View<int32_t> entries) const override;

 private:
  const SwaSlots& slots_;
  Tensor copy_;  // GPUs
  TensorView slot_map_;
  int64_t cursor_;
};

}  // namespace attend
