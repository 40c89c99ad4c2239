// ReqToTokenPool: request row x position -> token slot.
#pragma once

#include <optional>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/change_log.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// Positions first, .., first + count - 1 of a row.
struct RowRange {
  RequestRow row;
  int first = 0;
  int count = 0;
};

// int32 [num_rows, max_context_len] on the host, zero-initialized; row 0 is the padding row and is never
// handed out, so a padded request reads slot 0, the padding page. Rows are reused last-freed first. Not
// thread-safe: the engine's owner thread writes it, and executors read it while the engine launches.
//
// Every executor reads it through DeviceRows (kv/storage/device_rows.h): this table on the CPU, a copy on a
// GPU.
class ReqToTokenPool {
 public:
  // `max_reqs` rows besides the padding row. `max_context_len`: positions per row. Throws Error(kOutOfMemory)
  // with needed and free bytes.
  ReqToTokenPool(int max_reqs, int max_context_len);

  // A free row, or nothing when all are taken.
  std::optional<RequestRow> allocate();
  // Throws Error(kInternal) for a row that is not taken. The row's entries are set back to 0.
  void free(RequestRow row);

  // Writes slots of positions first, first + 1, ... of a row. Throws Error(kInternal), changing nothing, for
  // a row that is not taken, a position that a row does not have, or a negative slot.
  void write(RequestRow row, int first, View<const TokenSlot> slots);
  // The same for slots of tokens that no step stores, since their K/V is there already: copies of the table
  // find them by follow_shared().
  void write_shared(RequestRow row, int first, View<const TokenSlot> slots);
  // The slots of positions [0, max_context_len); all 0 in the padding row.
  View<const TokenSlot> row(RequestRow row) const;

  // Cursor of a copy that is complete now.
  int64_t shared_cursor() const { return shared_writes_.end(); }
  // Calls `copy(RowRange)` for what a copy with this cursor lacks of the slots that write_shared() wrote, and
  // moves the cursor: the ranges written since, or, where those are too many to be kept, all that rows hold.
  template <class Copy>
  void follow_shared(int64_t& cursor, const Copy& copy) const {
    if (shared_writes_.follow(cursor, copy)) return;
    for (int row = 1; row < num_rows_; ++row)
      if (const int count = num_written_[static_cast<size_t>(row)]; count > 0)
        copy(RowRange{RequestRow(row), 0, count});
  }

  // All rows are free, whoever had them: for an owner who lost count.
  void reset();

  const TensorView& table() const { return table_.view(); }
  int max_context_len() const { return max_context_len_; }
  int num_rows() const { return num_rows_; }  // the padding row included
  int num_free() const { return static_cast<int>(free_.size()); }

  static size_t num_bytes(int max_reqs, int max_context_len);

 private:
  void check_allocated(RequestRow row) const;
  void clear(RequestRow row);

  int num_rows_, max_context_len_;
  Tensor table_;
  std::vector<RequestRow> free_;
  std::vector<bool> allocated_;
  std::vector<int> num_written_;  // by row: positions from the first on that are not known to be 0
  ChangeLog<RowRange> shared_writes_;
};

}  // namespace attend
#pragma GCC visibility pop
