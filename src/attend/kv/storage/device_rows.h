// DeviceRows and DeviceSlotMap: tables of one executor on its device, for bookkeeping that executors share.
//
// On the CPU they are the host's own tables, without copies. On a GPU each is a copy in device memory. The
// slots of a step's new tokens are uploaded with the step's arrays (write_new_slots). Other changes on the
// host since the executor's last step are copied before the step. Each executor has its own cursor, so
// executors over the same rows and slots may launch in any order and at different rates.
#pragma once

#include "attend/kernels/metadata/metadata.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/storage/step_column.h"
#include "attend/tensor/device.h"

#pragma GCC visibility push(default)
namespace attend {

class SwaSlots;

// Belongs to one executor's thread. Entries of freed rows may be stale: kernels only read positions below
// seqlen_kv.
class DeviceRows {
 public:
  // `rows` must outlive this object. Throws Error(kOutOfMemory).
  DeviceRows(const ReqToTokenPool& rows, Device device);

  // int32 [num_rows, max_context_len] on the device: request row x position -> token slot.
  const TensorView& table() const { return table_; }

  // On a GPU: queues copies of the slots that ReqToTokenPool::write_shared() wrote since the last call. Does
  // nothing on the CPU.
  void upload_shared(Stream& stream);
  // On a GPU: queues a kernel that writes the slots of a step's new tokens from arrays in device memory. Does
  // nothing on the CPU.
  void write_new_slots(const kernels::NewSlots& slots, Stream& stream) const;

 private:
  const ReqToTokenPool& rows_;
  Tensor copy_;  // GPUs
  TensorView table_;
  int64_t cursor_;
};

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
#pragma GCC visibility pop
