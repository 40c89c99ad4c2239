#include "attend/kv/state/state_slots.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

StateSlots::StateSlots(int num_rows, int num_snapshots, int max_draft_reqs)
    : num_rows_(num_rows),
      num_snapshots_(num_snapshots),
      max_draft_reqs_(max_draft_reqs),
      rows_(static_cast<size_t>(num_rows)) {
  free_.reserve(static_cast<size_t>(num_snapshots));
  reset();
}

int StateSlots::allocate() {
  if (free_.empty()) return 0;
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateSlots::free(int slot) {
  ensure(slot >= num_rows_ && slot < num_rows_ + num_snapshots_ && num_free() < num_snapshots_, "state slot ",
         slot, " is not of a snapshot in use");
  free_.push_back(slot);
}

void StateSlots::set_load(RequestRow row, int position, int slot) { of(row).load = {position, slot}; }

void StateSlots::add_save(RequestRow row, int position, int slot) {
  of(row).saves.push_back({position, slot});
}

void StateSlots::drop_save(RequestRow row, int position) {
  std::erase_if(of(row).saves, [&](const Entry& save) { return save.position == position; });
}

void StateSlots::clear(RequestRow row) {
  of(row).load = {};
  of(row).saves.clear();
}

void StateSlots::reset() {
  free_.clear();
  for (int slot = num_rows_ + num_snapshots_ - 1; slot >= num_rows_; --slot) free_.push_back(slot);
  for (Row& row : rows_) row = {};
}

int StateSlots::load_slot(RequestRow row, int position) const {
  const Entry& load = of(row).load;
  return load.position == position ? load.slot : 0;
}

int StateSlots::save_slot(RequestRow row, int position) const {
  for (const Entry& save : of(row).saves)
    if (save.position == position) return save.slot;
  return 0;
}

void StateRowColumn::fill(const HostStep& step, View<int32_t> entries) const {
  int num_verified = 0;
  for (size_t r = 0; r < entries.size(); ++r)
    entries[r] = verifies(step, r) ? slots_.draft_slot(num_verified++) : step.request_rows[r].value;
  ensure(num_verified <= slots_.max_draft_reqs(), num_verified, " requests with drafts: expected at most ",
         slots_.max_draft_reqs());
}

void StateLoadColumn::fill(const HostStep& step, View<int32_t> entries) const {
  for (size_t r = 0; r < entries.size(); ++r) {
    const RequestRow row = step.request_rows[r];
    const int first = step.seqlen_kv[r] - (step.cu_seqlen_q[r + 1] - step.cu_seqlen_q[r]);
    entries[r] = row == kPaddingRow ? 0 : slots_.load_slot(row, first);
    if (verifies(step, r) && entries[r] == 0) entries[r] = row.value;
  }
}

void StateSaveColumn::fill(const HostStep& step, View<int32_t> entries) const {
  std::ranges::fill(entries, 0);
  for (size_t r = 0; r < step.request_rows.size(); ++r) {
    if (step.request_rows[r] == kPaddingRow || verifies(step, r)) continue;
    const int end = step.seqlen_kv[r];
    for (int token = step.cu_seqlen_q[r]; token < step.cu_seqlen_q[r + 1]; ++token)
      entries[static_cast<size_t>(token)] =
          slots_.save_slot(step.request_rows[r], end - (step.cu_seqlen_q[r + 1] - 1 - token));
  }
}

void VerifiedTokenColumn::fill(const HostStep& step, View<int32_t> entries) const {
  std::ranges::fill(entries, 0);
  size_t count = 0;
  for (size_t r = 0; r < step.request_rows.size(); ++r)
    for (int token = step.cu_seqlen_q[r]; verifies(step, r) && token < step.cu_seqlen_q[r + 1]; ++token)
      entries[count++] = token;
}

}  // namespace attend
