// DeviceRows and DeviceSlotMap: the tables of one executor on its device, over bookkeeping that executors
// share.
//
// On the CPU they are the host's own tables, and there is nothing to copy. On a GPU each is a copy in its
// memory. The slots of a step's new tokens reach it with the step's arrays (write_new_slots); what else the
// host has written since the executor's last step is copied before the step. Every executor has a cursor of
// its own, so executors over the same rows and slots may launch in any order, and some more often than
// others.
#pragma once

#include "attend/kernels/metadata/metadata.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/storage/step_column.h"
#include "attend/tensor/device.h"

#pragma GCC visibility push(default)
namespace attend {

class SwaSlots;

// Belongs to one executor's thread. Entries of freed rows may stay: kernels read positions below seqlen_kv
// only.
class DeviceRows {
 public:
  // `rows` outlives this. Throws Error(kOutOfMemory).
  DeviceRows(const ReqToTokenPool& rows, Device device);

  // int32 [num_rows, max_context_len] on the device: request row x position -> token slot.
  const TensorView& table() const { return table_; }

  // On a GPU: queues copying the slots that ReqToTokenPool::write_shared() has written since the last call.
  // Nothing to do on the CPU.
  void upload_shared(Stream& stream);
  // On a GPU: queues writing the slots of a step's new tokens, whose arrays are in its memory. Nothing to do
  // on the CPU.
  void write_new_slots(const kernels::NewSlots& slots, Stream& stream) const;

 private:
  const ReqToTokenPool& rows_;
  Tensor copy_;  // GPUs
  TensorView table_;
  int64_t cursor_;
};

// The same of the map from token slots to slots of the window half. Its column has the window slots of a
// step's new tokens; -1: not stored.
class DeviceSlotMap final : public StepColumn {
 public:
  // `slots` outlives this. Throws Error(kOutOfMemory).
  DeviceSlotMap(const SwaSlots& slots, Device device);

  // int32 [slots of the full half] on the device: slot of the window half.
  const TensorView& slot_map() const { return slot_map_; }

  // On a GPU: queues copying the entries of pages that SwaSlots::replace() has given window pages since the
  // last call. Nothing to do on the CPU.
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
