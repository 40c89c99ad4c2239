#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kv/cache_group.h"

namespace attend {
namespace {

class StateGroup final : public CacheGroup, public PageData {
 public:
  StateGroup(const ReqToTokenPool& rows, StateSlots& slots, const StateGroupOptions& options)
      : rows_(rows), slots_(slots), options_(options), row_states_(static_cast<size_t>(rows.num_rows())) {
    for (const int distance : {options.grid, options.interval, options.answer_interval})
      ensure(distance >= 1 && distance % options.page_size == 0 && distance % options.grid == 0,
             "snapshots every ", distance, " tokens: expected a multiple of the page size ",
             options.page_size, " and of the grid ", options.grid);
  }

  int match(View<const PageId> prefix) const override {
    const int end = longest_resumable(*this, static_cast<int>(prefix.size()), [&](int page) {
      return snapshots_.contains(prefix[static_cast<size_t>(page)]);
    });
    if (end == 0) return 0;
    const auto found = snapshots_.find(prefix[static_cast<size_t>(end) - 1]);
    ensure(found->second.position == end * options_.page_size, "the snapshot of page ", found->first,
           " is of position ", found->second.position, ", its page ends at ", end * options_.page_size);
    return end;
  }

  // A row in use has a state, which cannot skip tokens.
  bool can_skip() const override { return false; }
  int grid() const override { return options_.grid; }

  void begin(RequestRow row, int first_page, View<const PageId> pages, int num_found) override {
    RowState& state = of(row);
    ensure(!state.in_use && first_page == 0, "row ", row, " begins at page ", first_page, " while in use");
    state.in_use = true;
    const int fork = num_found * options_.page_size / options_.grid * options_.grid;
    state.fork = fork;
    if (pages.empty()) return;
    Snapshot& snapshot = snapshots_.at(pages.back());
    by_age_.splice(by_age_.end(), by_age_, snapshot.age);
    ++snapshot.num_loads;
    state.loads = pages.back();
    slots_.set_load(row, snapshot.position, snapshot.slot);
  }

  std::optional<int> pages_to_evict(int) const override { return 0; }

  void grow(RequestRow row, int num_before, int num_after, const NewTokens& tokens) override {
    if (!tokens.is_prompt) {
      const int last = num_after / options_.answer_interval * options_.answer_interval;
      if (last > num_before) save_answer(row, last);
      return;
    }
    // The last states first: they are the most useful ones if there are too few slots.
    const int prompt_end = (tokens.prompt_end - 1) / options_.grid * options_.grid;
    for (const int position : {prompt_end, of(row).fork})
      if (num_before < position && position <= num_after) save(row, position);
    for (int position = num_after / options_.interval * options_.interval; position > num_before;
         position -= options_.interval)
      save(row, position);
  }

  void advance(RequestRow row, int num_computed) override {
    RowState& state = of(row);
    drop_former_answers(row, num_computed);
    if (state.loads != kNoPage && num_computed > snapshots_.at(state.loads).position) end_load(row);
  }

  void rewind(RequestRow row, int, int num_after) override {
    std::erase_if(of(row).saves, [&](const Save& save) {
      if (save.position <= num_after) return false;
      drop(row, save);
      return true;
    });
  }

  void snapshot(RequestRow row, int num_tokens) override {
    std::erase_if(of(row).saves, [&](const Save& save) {
      if (save.position > num_tokens) return false;
      slots_.drop_save(row, save.position);
      const TokenSlot last = rows_.row(row)[static_cast<size_t>(save.position) - 1];
      const PageId page(last.value / options_.page_size);
      if (!snapshots_.contains(page))
        add(page, {.slot = save.slot, .position = save.position});
      else
        slots_.free(save.slot);
      return true;
    });
  }

  // The cache has the same page already, with its own snapshot or none.
  void replace(RequestRow, int, View<const PageId>, View<const PageId>) override {}

  void release(RequestRow row, int) override {
    RowState& state = of(row);
    ensure(state.in_use, "row ", row, " is released without a state");
    if (state.loads != kNoPage) end_load(row);
    for (const Save& save : state.saves) slots_.free(save.slot);
    slots_.clear(row);
    state = {};
  }

  void forget(View<const PageId> pages) override {
    for (const PageId page : pages)
      if (const auto found = snapshots_.find(page); found != snapshots_.end()) {
        ensure(found->second.num_loads == 0, "page ", page, " is freed while its snapshot is read");
        slots_.free(found->second.slot);
        erase(found);
      }
  }

  void reset() override {
    slots_.reset();
    std::ranges::fill(row_states_, RowState{});
    snapshots_.clear();
    by_age_.clear();
  }

  PageData* page_data() override { return this; }
  PageDataKind kind() const override { return PageDataKind::kState; }
  int first_needed(int num_pages) const override { return std::max(0, num_pages - 1); }
  std::optional<int> find(PageId page) const override {
    const auto found = snapshots_.find(page);
    if (found == snapshots_.end()) return std::nullopt;
    return found->second.slot;
  }
  std::optional<int> restore(PageId page, int position) override {
    const int slot = take_slot();
    if (slot == 0) return std::nullopt;
    add(page, {.slot = slot, .position = position});
    return slot;
  }
  void set_before_drop(BeforeDrop before_drop) override { before_drop_ = std::move(before_drop); }

  void check(View<const CachedRow> rows) const override {
    size_t num_in_use = 0, num_saves = 0;
    int64_t num_loads = 0, expected_loads = 0;
    for (const RowState& state : row_states_) {
      num_in_use += state.in_use ? 1 : 0;
      num_saves += state.saves.size();
      expected_loads += state.loads != kNoPage ? 1 : 0;
    }
    for (const auto& [page, snapshot] : snapshots_) num_loads += snapshot.num_loads;
    ensure(num_in_use == rows.size(), num_in_use, " rows have a state, ", rows.size(), " are in use");
    for (const CachedRow& row : rows)
      ensure(row_states_[static_cast<size_t>(row.row.value)].in_use, "row ", row.row, " has no state");
    ensure(num_loads == expected_loads, "snapshots are read by ", num_loads, " rows, expected ",
           expected_loads);
    ensure(snapshots_.size() == by_age_.size(), snapshots_.size(), " snapshots, ", by_age_.size(),
           " in the order of their use");
    ensure(static_cast<size_t>(slots_.num_free()) + num_saves + snapshots_.size() ==
               static_cast<size_t>(slots_.num_snapshots()),
           "snapshots: ", slots_.num_free(), " free, ", num_saves, " of rows and ", snapshots_.size(),
           " of pages; expected a sum of ", slots_.num_snapshots());
  }

 private:
  static constexpr PageId kNoPage{-1};

  // State that a step saves, or has saved, and that no page owns yet.
  struct Save {
    int position = 0, slot = 0;
    bool of_answer = false;
  };
  struct RowState {
    bool in_use = false;
    int fork = 0;            // last position on the grid that was cached at begin()
    PageId loads = kNoPage;  // page of the snapshot that the next step reads
    std::vector<Save> saves;
  };
  struct Snapshot {
    int slot = 0, position = 0;
    int num_loads = 0;  // rows that read it in their next step
    std::list<PageId>::iterator age = {};
  };
  using Snapshots = std::unordered_map<PageId, Snapshot>;

  RowState& of(RequestRow row) { return row_states_.at(static_cast<size_t>(row.value)); }

  void end_load(RequestRow row) {
    --snapshots_.at(of(row).loads).num_loads;
    of(row).loads = kNoPage;
    slots_.set_load(row, 0, 0);
  }

  void drop(RequestRow row, const Save& save) {
    slots_.drop_save(row, save.position);
    slots_.free(save.slot);
  }

  void add(PageId page, const Snapshot& snapshot) {
    snapshots_.emplace(page, snapshot).first->second.age = by_age_.insert(by_age_.end(), page);
  }

  void erase(Snapshots::iterator snapshot) {
    by_age_.erase(snapshot->second.age);
    snapshots_.erase(snapshot);
  }

  // Returns a slot for a snapshot: a free one, or that of the least recently used page; 0: all are in use.
  int take_slot() {
    if (const int slot = slots_.allocate(); slot != 0) return slot;
    const auto oldest =
        std::ranges::find_if(by_age_, [&](const PageId page) { return snapshots_.at(page).num_loads == 0; });
    if (oldest == by_age_.end()) return 0;
    const auto snapshot = snapshots_.find(*oldest);
    const int slot = snapshot->second.slot;
    if (before_drop_) before_drop_(snapshot->first, slot);
    erase(snapshot);
    return slot;
  }

  void save(RequestRow row, int position) {
    std::vector<Save>& saves = of(row).saves;
    if (std::ranges::find(saves, position, &Save::position) != saves.end()) return;
    const int slot = take_slot();
    if (slot == 0) return;
    saves.push_back({.position = position, .slot = slot});
    slots_.add_save(row, position, slot);
  }

  // An answer has one state, that of its last position. The former one remains until the next one is
  // computed, since its token may be a draft that is rejected.
  void save_answer(RequestRow row, int position) {
    std::vector<Save>& saves = of(row).saves;
    save(row, position);
    if (!saves.empty() && saves.back().position == position) saves.back().of_answer = true;
  }

  void drop_former_answers(RequestRow row, int num_computed) {
    std::vector<Save>& saves = of(row).saves;
    int last = 0;
    for (const Save& save : saves)
      if (save.of_answer && save.position <= num_computed) last = std::max(last, save.position);
    std::erase_if(saves, [&](const Save& save) {
      if (!save.of_answer || save.position >= last) return false;
      drop(row, save);
      return true;
    });
  }

  const ReqToTokenPool& rows_;
  StateSlots& slots_;
  StateGroupOptions options_;
  std::vector<RowState> row_states_;
  Snapshots snapshots_;       // by the page that ends at the position
  BeforeDrop before_drop_;    // may be empty
  std::list<PageId> by_age_;  // pages of the snapshots, least recently used first
};

}  // namespace

std::unique_ptr<CacheGroup> make_state_group(const ReqToTokenPool& rows, StateSlots& slots,
                                             const StateGroupOptions& options) {
  return std::make_unique<StateGroup>(rows, slots, options);
}

}  // namespace attend
