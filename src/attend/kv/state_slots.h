// StateSlots: state slots of request rows and snapshots, on the host. The engine owns it; all its executors
// use the same slots.
#pragma once

#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/storage/step_column.h"

#pragma GCC visibility push(default)
namespace attend {

// The slot of a request is its row; the slots from num_rows on hold snapshots. A step restores and saves
// snapshots while it computes: the request's first token after a restored position reads the snapshot's slot,
// and the token before a saved position also writes one.
//
// Not thread-safe: the engine's owner thread calls it.
class StateSlots {
 public:
  // `num_rows`: rows of the ReqToTokenPool, including the padding row.
  StateSlots(int num_rows, int num_snapshots);

  int num_rows() const { return num_rows_; }
  int num_snapshots() const { return num_snapshots_; }
  int num_slots() const { return num_rows_ + num_snapshots_; }
  int num_free() const { return static_cast<int>(free_.size()); }

  // Slots of snapshots. allocate() returns 0 if all are in use.
  int allocate();
  void free(int slot);

  // The row's token at `position` starts from the state in `slot`.
  void set_load(RequestRow row, int position, int slot);
  // The state after the row's first `position` tokens is also written to `slot`.
  void add_save(RequestRow row, int position, int slot);
  // Drops the row's entry for this position.
  void drop_save(RequestRow row, int position);
  // Drops all entries of the row.
  void clear(RequestRow row);
  // Frees all snapshots and drops all entries.
  void reset();

  // Slot that the token at `position` of the row loads, or that receives the state after the row's first
  // `position` tokens; 0: none.
  int load_slot(RequestRow row, int position) const;
  int save_slot(RequestRow row, int position) const;

 private:
  struct Entry {
    int position = 0, slot = 0;
  };
  struct Row {
    Entry load;
    std::vector<Entry> saves;
  };

  Row& of(RequestRow row) { return rows_.at(static_cast<size_t>(row.value)); }
  const Row& of(RequestRow row) const { return rows_.at(static_cast<size_t>(row.value)); }

  int num_rows_, num_snapshots_;
  std::vector<int> free_;
  std::vector<Row> rows_;
};

// Columns of the steps: RecurrentBatch::load_slots and save_slots.
class StateLoadColumn final : public StepColumn {
 public:
  // `slots` must outlive this object.
  explicit StateLoadColumn(const StateSlots& slots) : StepColumn(Length::kRequests), slots_(slots) {}
  void fill(const HostStep& step, View<int32_t> entries) const override;

 private:
  const StateSlots& slots_;
};

class StateSaveColumn final : public StepColumn {
 public:
  explicit StateSaveColumn(const StateSlots& slots) : StepColumn(Length::kTokens), slots_(slots) {}
  void fill(const HostStep& step, View<int32_t> entries) const override;

 private:
  const StateSlots& slots_;
};

}  // namespace attend
#pragma GCC visibility pop
