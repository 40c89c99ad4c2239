// DeviceRows: rows of the ReqToTokenPool on the device of one executor.
//
// On the CPU it is the host's own table, without a copy. On a GPU it is a copy in device memory. The slots of
// a step's new tokens are uploaded with the step's arrays (write_new_slots). Other changes on the host since
// the executor's last step are copied before the step. Each executor has its own cursor, so executors over
// the same rows may launch in any order and at different rates.
#pragma once

#include "attend/kernels/metadata/metadata.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/tensor/device.h"

#pragma GCC visibility push(default)
namespace attend {

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

}  // namespace attend
#pragma GCC visibility pop
