// ReqToTokenPool: request row x position -> token slot.
#pragma once

#include <optional>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kernels/metadata/metadata.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// int32 [num_rows, max_context_len], zero-initialized; row 0 is the padding row and is never handed out, so a
// padded request reads slot 0, the padding page. Rows are reused last-freed first. Written by the host. Not
// thread-safe: the engine's owner thread writes it.
//
// For a GPU there is a copy in its memory, which upload() brings up to date with a step's new tokens and
// upload_shared() with the slots of those before them that the request shares. What a freed row held stays
// there: kernels read positions below seqlen_kv only.
class ReqToTokenPool {
 public:
  // `max_reqs` rows besides the padding row. `max_context_len`: positions per row. Throws Error(kOutOfMemory)
  // with needed and free bytes.
  ReqToTokenPool(int max_reqs, int max_context_len, Device device = {});

  // A free row, or nothing when all are taken.
  std::optional<RequestRow> allocate();
  // Throws Error(kInternal) for a row that is not taken. The row's entries are set back to 0.
  void free(RequestRow row);

  // Writes slots of positions first, first + 1, ... of a row. Throws Error(kInternal), changing nothing, for
  // a row that is not taken, a position that a row does not have, or a negative slot.
  void write(RequestRow row, int first, View<const TokenSlot> slots);
  // The same for slots of tokens that no step stores, since their K/V is there already: upload_shared()
  // brings them to a GPU.
  void write_shared(RequestRow row, int first, View<const TokenSlot> slots);
  // The slots of positions [0, max_context_len); all 0 in the padding row.
  View<const TokenSlot> row(RequestRow row) const;

  // On a GPU: queues writing the slots of the tokens of a step, whose arrays lie in its memory. Nothing to do
  // on the CPU.
  void upload(const kernels::NewSlots& slots, Stream& stream) const;

  // On a GPU: queues copying what write_shared() has written since the last call. Nothing to do on the CPU.
  void upload_shared(Stream& stream);

  // All rows are free, whoever had them: for an owner who lost count.
  void reset();

  // int32 [num_rows, max_context_len] on the device: what kernels read.
  const TensorView& table() const { return device_table_.view(); }
  int max_context_len() const { return max_context_len_; }
  int num_rows() const { return num_rows_; }  // the padding row included
  int num_free() const { return static_cast<int>(free_.size()); }

  static size_t num_bytes(int max_reqs, int max_context_len);

 private:
  struct Range {
    RequestRow row;
    int first;
    int count;
  };

  void check_allocated(RequestRow row) const;
  void clear(RequestRow row);

  int num_rows_, max_context_len_;
  Tensor table_;         // the host's
  Tensor device_table_;  // the same on the CPU
  std::vector<RequestRow> free_;
  std::vector<bool> allocated_;
  std::vector<int> num_written_;  // by row: positions from the first on that are not known to be 0
  std::vector<Range> shared_;     // written and not uploaded
};

}  // namespace attend
#pragma GCC visibility pop
