#include "attend/kv/storage/device_rows.h"

#include "attend/tensor/cuda.h"

namespace attend {

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
  if (table_.device.type == DeviceType::kCpu) return;
  rows_.apply_shared_writes(cursor_, [&](const RowRange& range) {
    const auto part = [&](const TensorView& table) {
      return table.slice(0, range.row.value, range.row.value + 1)
          .slice(1, range.first, range.first + range.count);
    };
    cuda::copy(part(rows_.table()), part(table_), stream);
  });
}

void DeviceRows::write_new_slots(const kernels::NewSlots& slots, Stream& stream) const {
  if (table_.device.type != DeviceType::kCpu) kernels::write_new_slots(slots, table_, stream);
}

}  // namespace attend
