// ReqToTokenPool: request row x position -> token slot.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

template <class Change>
class ChangeLog;

// Positions [first, first + count) of a row.
struct RowRange {
  RequestRow row;
  int first = 0;
  int count = 0;
};

// int32 [num_rows, max_context_len] on the host, initialized with zeros. Row 0 is the padding row and is
// never allocated, so a pad request reads slot 0, the padding page. The last freed row is reused first. Not
// thread-safe: the engine's owner thread writes it, and executors read it while the engine launches.
//
// Executors read it through DeviceRows (kv/storage/device_rows.h): this table on the CPU, a copy on a GPU.
class ReqToTokenPool {
 public:
  // Allocates `max_reqs` rows and the padding row, of `max_context_len` positions each. Throws
  // Error(kOutOfMemory) with needed and free bytes.
  ReqToTokenPool(int max_reqs, int max_context_len);
  ~ReqToTokenPool();

  // Allocates a row; nullopt if all are in use.
  std::optional<RequestRow> allocate();
  // Frees a row and resets its entries to 0. Throws Error(kInternal) for a row that is not in use.
  void free(RequestRow row);

  // Writes slots of positions first, first + 1, ... of a row. Throws Error(kInternal) and changes nothing for
  // a row that is not in use, a position out of range, or a negative slot.
  void write(RequestRow row, int first, View<const TokenSlot> slots);
  // Like write(), for slots of cached or skipped tokens, which no step stores. Copies of the table receive
  // them by apply_shared_writes().
  void write_shared(RequestRow row, int first, View<const TokenSlot> slots);
  // Slots of positions [0, max_context_len); all 0 in the padding row.
  View<const TokenSlot> row(RequestRow row) const;

  // Cursor of a copy that is up to date.
  int64_t shared_cursor() const;
  // Calls `copy(RowRange)` for the ranges that write_shared() wrote after this cursor, and moves the cursor.
  // If these are too many to be stored, calls it for all written positions of all rows.
  void apply_shared_writes(int64_t& cursor, const std::function<void(const RowRange&)>& copy) const;

  // Frees all rows. For recovery from inconsistent bookkeeping.
  void reset();

  const TensorView& table() const { return table_.view(); }
  int max_context_len() const { return max_context_len_; }
  int num_rows() const { return num_rows_; }  // including the padding row
  int num_free() const { return static_cast<int>(free_.size()); }

  static size_t num_bytes(int max_reqs, int max_context_len);

 private:
  void check_allocated(RequestRow row) const;
  void clear(RequestRow row);

  int num_rows_, max_context_len_;
  Tensor table_;
  std::vector<RequestRow> free_;
  std::vector<bool> allocated_;
  std::vector<int> num_written_;  // by row: number of first positions that may be nonzero
  std::unique_ptr<ChangeLog<RowRange>> shared_writes_;
};

}  // namespace attend
#pragma GCC visibility pop
