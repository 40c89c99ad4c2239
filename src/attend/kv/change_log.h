// ChangeLog: last changes of a table on the host, for copies that are updated at different times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace attend {

// Each copy has a cursor: the number of changes that it has applied. The log stores the last `capacity`
// changes and allocates nothing after construction. The owner of the table adds changes, and copies read
// between its calls.
template <class Change>
class ChangeLog {
 public:
  // `capacity`: at least 1.
  explicit ChangeLog(int capacity) : changes_(static_cast<size_t>(capacity)) {}

  void add(const Change& change) { changes_[static_cast<size_t>(num_added_++) % changes_.size()] = change; }
  // Cursor of a copy with all changes.
  int64_t end() const { return num_added_; }

  // Calls `apply(change)` for the changes from `cursor` on, oldest first, and moves the cursor to the end.
  // Returns false without a call if some of them are no longer stored: the table has to be copied as a whole.
  template <class Apply>
  bool apply_since(int64_t& cursor, const Apply& apply) const {
    const int64_t begin = std::exchange(cursor, num_added_);
    if (num_added_ - begin > std::ssize(changes_)) return false;
    for (int64_t i = begin; i < num_added_; ++i) apply(changes_[static_cast<size_t>(i) % changes_.size()]);
    return true;
  }

 private:
  std::vector<Change> changes_;  // change i is at i modulo the size
  int64_t num_added_ = 0;
};

}  // namespace attend
