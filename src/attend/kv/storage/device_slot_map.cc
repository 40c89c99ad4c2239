#include "attend/kv/storage/device_slot_map.h"

#include "attend/tensor/cuda.h"

namespace attend {

DeviceSlotMap::DeviceSlotMap(const SwaSlots& slots, Device device)
    : StepColumn(Length::kTokens), slots_(slots), slot_map_(slots.slot_map()), cursor_(slots.moved_cursor()) {
  if (device.type == DeviceType::kCpu) return;
  copy_ = cuda::copy_to(slots.slot_map(), device);
  slot_map_ = copy_.view();
}

void DeviceSlotMap::upload_moved(Stream& stream) {
  if (slot_map_.device.type == DeviceType::kCpu) return;
  slots_.follow_moved(cursor_, [&](int64_t first, int64_t end) {
    cuda::copy(slots_.slot_map().slice(0, first, end), slot_map_.slice(0, first, end), stream);
  });
}

void DeviceSlotMap::fill(const HostStep& step, View<int32_t> entries) const {
  slots_.translate(step.out_slots, entries);
}

}  // namespace attend
