// StateGroup: the cache group of a recurrent model without the model. The state of a row is the key of its
// last token, which depends on all tokens before it. The work of a GPU (compute, save, copy and replay
// states) runs immediately on the host.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kv/cache_group.h"

namespace attend::test {

class StateGroup final : public CacheGroup {
 public:
  // Saves states at multiples of `grid_pages` pages, at most `max_snapshots` at a time. For a prompt: the
  // last state at which the same prompt can resume, and the last one before the fork, where the prompt leaves
  // its cached prefix. For an answer: each one.
  StateGroup(const ReqToTokenPool& rows, int page_size, int grid_pages, int max_snapshots)
      : rows_(rows),
        page_size_(page_size),
        grid_(grid_pages * page_size),
        max_snapshots_(max_snapshots),
        states_(static_cast<size_t>(rows.num_rows())) {}

  // Computes tokens from position `first` to the end of `keys`, the keys of all tokens of the row. Throws
  // unless the row has the state of the tokens before `first`.
  void compute(RequestRow row, int first, View<const uint64_t> keys) {
    RowState& state = of(row);
    ensure(state.taken && state.live.position == first, "state of row ", row, ": position ",
           state.live.position, ", expected ", first);
    ensure(first == 0 || state.live.key == keys[static_cast<size_t>(first) - 1], "row ", row,
           " has the state of other tokens at position ", first);
    ensure(state.replay.empty(), "row ", row, " has a step that is not committed");
    for (size_t p = static_cast<size_t>(first); p < keys.size(); ++p) {
      state.live = {static_cast<int>(p) + 1, keys[p]};
      state.replay.push_back(state.live);
      if (state.to_save.erase(state.live.position) == 0 || !make_room()) continue;
      state.saved.push_back(state.live);
      num_saved_forks_ += state.live.position == state.fork ? 1 : 0;
    }
  }

  bool has_snapshot(PageId page) const { return snapshots_.contains(page); }
  int num_snapshots() const { return static_cast<int>(snapshots_.size()); }
  // Number of states saved where a prompt leaves its cached prefix.
  int num_saved_forks() const { return num_saved_forks_; }
  int num_restored() const { return num_restored_; }  // rows that started from a snapshot
  int num_replayed() const { return num_replayed_; }  // rows with a state that rewind() restored

  int match(View<const PageId> prefix) const override {
    for (auto end = static_cast<int>(prefix.size()); end > 0; --end) {
      const auto found = snapshots_.find(prefix[static_cast<size_t>(end) - 1]);
      if (found == snapshots_.end()) continue;
      ensure(found->second.state.position == end * page_size_, "snapshot of page ", found->first,
             " is of position ", found->second.state.position);
      return end;
    }
    return 0;
  }
  bool can_skip() const override { return false; }

  int grid() const override { return grid_; }

  void begin(RequestRow row, int first_page, View<const PageId> pages, int num_found) override {
    RowState& state = of(row);
    ensure(!state.taken && first_page == 0, "row ", row, " begins again");
    ensure(num_found >= static_cast<int>(pages.size()), "row ", row, " begins after ", pages.size(),
           " pages, of which ", num_found, " are cached");
    state.taken = true;
    state.fork = num_found * page_size_ / grid_ * grid_;
    if (pages.empty()) return;
    Snapshot& snapshot = snapshots_.at(pages.back());
    by_age_.splice(by_age_.end(), by_age_, snapshot.age);
    state.live = state.committed = snapshot.state;
    ++num_restored_;
  }

  std::optional<int> pages_to_evict(int) const override { return 0; }
  void grow(RequestRow row, int num_before, int num_after, const NewTokens& tokens) override {
    RowState& state = of(row);
    ensure(state.taken && num_before < num_after, "row ", row, " grows from ", num_before, " to ", num_after);
    if (!tokens.is_prompt) {
      for (int p = round_up(num_before + 1, grid_); p <= num_after; p += grid_) state.to_save.insert(p);
      return;
    }
    ensure(num_after <= tokens.prompt_end, "row ", row, " grows to ", num_after,
           ", past the end of its prompt at ", tokens.prompt_end);
    for (const int p : {state.fork, (tokens.prompt_end - 1) / grid_ * grid_})
      if (num_before < p && p <= num_after) state.to_save.insert(p);
  }

  void advance(RequestRow row, int num_computed) override {
    RowState& state = of(row);
    ensure(num_computed >= state.committed.position && num_computed <= state.live.position, "row ", row,
           " advances to ", num_computed, ", its state is at ", state.live.position);
    for (const State& each : state.replay)
      if (each.position == num_computed) state.committed = each;
    if (state.live.position == num_computed) state.replay.clear();
  }

  void rewind(RequestRow row, int num_before, int num_after) override {
    RowState& state = of(row);
    ensure(num_before > num_after && state.committed.position <= num_after, "row ", row, " rewinds to ",
           num_after, ", its state is committed at ", state.committed.position);
    std::erase_if(state.to_save, [&](int position) { return position > num_after; });
    if (state.committed.position < num_after) {
      ensure(state.live.position <= num_after, "row ", row, " rewinds to ", num_after,
             " and is not committed there, its state is at ", state.live.position);
      return;  // the removed tokens were not computed
    }
    state.live = state.committed;
    state.replay.clear();
    std::erase_if(state.saved, [&](const State& each) { return each.position > num_after; });
    ++num_replayed_;
  }

  void snapshot(RequestRow row, int num_tokens) override {
    RowState& state = of(row);
    for (const State& each : state.saved) {
      if (each.position > num_tokens) continue;
      const int last = rows_.row(row)[static_cast<size_t>(each.position) - 1].value;
      const PageId page(last / page_size_);
      if (snapshots_.contains(page)) continue;
      snapshots_[page] = {each, by_age_.insert(by_age_.end(), page)};
    }
    std::erase_if(state.saved, [&](const State& each) { return each.position <= num_tokens; });
  }
  void replace(RequestRow, int, View<const PageId>, View<const PageId>) override {}

  void release(RequestRow row, int) override {
    ensure(of(row).taken, "row ", row, " is released twice");
    of(row) = {};
  }

  void forget(View<const PageId> pages) override {
    for (const PageId page : pages)
      if (const auto found = snapshots_.find(page); found != snapshots_.end()) drop(found);
  }

  void reset() override {
    for (RowState& state : states_) state = {};
    snapshots_.clear();
    by_age_.clear();
  }

  void check(View<const CachedRow> rows) const override {
    size_t num_taken = 0;
    for (const RowState& state : states_) num_taken += state.taken ? 1 : 0;
    ensure(num_taken == rows.size(), num_taken, " rows have a state, ", rows.size(), " are in use");
    for (const CachedRow& row : rows) {
      const RowState& state = states_[static_cast<size_t>(row.row.value)];
      ensure(state.taken && state.committed.position == row.num_computed, "row ", row.row, " with ",
             row.num_computed, " tokens has the state of position ", state.committed.position);
    }
    ensure(num_saved() <= max_snapshots_ && by_age_.size() == snapshots_.size(), num_saved(),
           " states are saved, there is room for ", max_snapshots_);
  }

 private:
  struct State {
    int position = 0;
    uint64_t key = 0;
  };
  struct RowState {
    bool taken = false;
    State live;                 // after the last launched step, including drafts
    State committed;            // as of the last advance()
    std::vector<State> replay;  // states after each token of the last step
    std::vector<State> saved;   // not yet snapshots of a page
    std::set<int> to_save;      // positions that later tokens reach
    int fork = 0;               // last position on the grid that was cached at begin()
  };
  struct Snapshot {
    State state;
    std::list<PageId>::iterator age;
  };

  RowState& of(RequestRow row) { return states_[static_cast<size_t>(row.value)]; }
  int num_saved() const {
    size_t num = snapshots_.size();
    for (const RowState& state : states_) num += state.saved.size();
    return static_cast<int>(num);
  }
  bool make_room() {
    if (num_saved() < max_snapshots_) return true;
    if (by_age_.empty()) return false;
    drop(snapshots_.find(by_age_.front()));
    return true;
  }
  void drop(std::map<PageId, Snapshot>::iterator snapshot) {
    by_age_.erase(snapshot->second.age);
    snapshots_.erase(snapshot);
  }

  const ReqToTokenPool& rows_;
  int page_size_, grid_, max_snapshots_;
  std::vector<RowState> states_;
  std::map<PageId, Snapshot> snapshots_;  // keyed by the page that ends at the state's position
  std::list<PageId> by_age_;              // pages of the snapshots, oldest first
  int num_saved_forks_ = 0, num_restored_ = 0, num_replayed_ = 0;
};

}  // namespace attend::test
