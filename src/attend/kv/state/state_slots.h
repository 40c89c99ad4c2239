// StateSlots: state slots of request rows and snapshots, on the host. The engine owns it; all its executors
// use the same slots.
#pragma once

#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/storage/step_column.h"

namespace attend {

// The slot of a request is its row; the slots from num_rows on hold snapshots. A step restores and saves
// snapshots while it computes: the request's first token after a restored position reads the snapshot's slot,
// and the token before a saved position also writes one.
//
// A step that verifies drafts changes neither the request's slot nor snapshots. Its last state is written to
// a slot that is never read, one of the last slots. When the number of accepted drafts is known, the next
// launch steps the state through the tokens again, without the rejected ones (VerifiedStates).
//
// Not thread-safe: the engine's owner thread calls it.
class StateSlots {
 public:
  // `num_rows`: rows of the ReqToTokenPool, including the padding row. `max_draft_reqs`: requests of a step
  // with drafts.
  StateSlots(int num_rows, int num_snapshots, int max_draft_reqs = 0);

  int num_rows() const { return num_rows_; }
  int num_snapshots() const { return num_snapshots_; }
  int max_draft_reqs() const { return max_draft_reqs_; }
  int num_slots() const { return num_rows_ + num_snapshots_ + max_draft_reqs_; }
  // Slot that the step's request number `i` with drafts writes.
  int draft_slot(int i) const { return num_rows_ + num_snapshots_ + i; }
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

  int num_rows_, num_snapshots_, max_draft_reqs_;
  std::vector<int> free_;
  std::vector<Row> rows_;
};

// Columns of the steps: rows, load_slots and save_slots of RecurrentBatch. `slots` must outlive them.
class StateRowColumn final : public StepColumn {
 public:
  explicit StateRowColumn(const StateSlots& slots) : StepColumn(Length::kRequests), slots_(slots) {}
  void fill(const HostStep& step, View<int32_t> entries) const override;

 private:
  const StateSlots& slots_;
};

class StateLoadColumn final : public StepColumn {
 public:
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

// Tokens of requests with drafts, in ascending order; the other entries are 0.
class VerifiedTokenColumn final : public StepColumn {
 public:
  VerifiedTokenColumn() : StepColumn(Length::kTokens) {}
  void fill(const HostStep& step, View<int32_t> entries) const override;
};

}  // namespace attend
