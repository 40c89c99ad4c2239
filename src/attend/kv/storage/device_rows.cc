#include "attend/kv/storage/device_rows.h"

#include "attend/kv/swa_slots.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

bool on_gpu(const TensorView& table) { return table.device.type != DeviceType::kCpu; }

}  // namespace

DeviceRows::DeviceRows(const ReqToTokenPool& rows, Device device)
    : rows_(rows), table_(rows.table()), cursor_(rows.shared_cursor()) {
  if (device.type == DeviceType::kCpu) return;
  // If no row is in use, the table is zero, and most of its memory is not committed.
  const bool is_zero = rows.num_free() == rows.num_rows() - 1;
  copy_ = is_zero ? cuda::zeros({rows.num_rows(), rows.max_context_len()}, DType::kI32, device)
                  : cuda::copy_to(rows.table(), device);
  table_ = copy_.view();
}

void DeviceRows::upload_shared(Stream& stream) {
  if (!on_gpu(table_)) return;
  rows_.apply_shared_writes(cursor_, [&](const RowRange& range) {
    const auto part = [&](const TensorView& table) {
      return table.slice(0, range.row.value, range.row.value + 1)
          .slice(1, range.first, range.first + range.count);
    };
    cuda::copy(part(rows_.table()), part(table_), stream);
  });
}

void DeviceRows::write_new_slots(const kernels::NewSlots& slots, Stream& stream) const {
  if (on_gpu(table_)) kernels::write_new_slots(slots, table_, stream);
}

DeviceSlotMap::DeviceSlotMap(const SwaSlots& slots, Device device)
    : StepColumn(Length::kTokens), slots_(slots), slot_map_(slots.slot_map()), cursor_(slots.moved_cursor()) {
  if (device.type == DeviceType::kCpu) return;
  copy_ = cuda::copy_to(slots.slot_map(), device);
  slot_map_ = copy_.view();
}

void DeviceSlotMap::upload_moved(Stream& stream) {
  if (!on_gpu(slot_map_)) return;
  slots_.follow_moved(cursor_, [&](int64_t first, int64_t end) {
    cuda::copy(slots_.slot_map().slice(0, first, end), slot_map_.slice(0, first, end), stream);
  });
}

void DeviceSlotMap::fill(const HostStep& step, View<int32_t> entries) const {
  slots_.translate(step.out_slots, entries);
}

}  // namespace attend
