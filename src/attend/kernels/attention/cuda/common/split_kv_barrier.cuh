// How the CTAs of a work tile share the merge of its partial results: one SM would read them too slowly.
// As many of them as there are rows, those that come last, wait for the others, then each merges some: one
// with few keys, which comes long before, need not wait. Which one merges which row changes no bit, and
// nobody relies on who waits: CTAs that have not begun may need the place of one that waits, so none waits
// long, and the last to come merges all rows where one has gone.
#pragma once

#include "attend/kernels/common/cuda/ptx/atomic.cuh"

namespace attend::kernels::cuda {

// Rows [begin, end) of a work tile.
struct MergeRows {
  int begin, end;
};

// Of one thread of a CTA. The state is an int of the work tile, 0 before and after: CTAs that came, CTAs with
// a share that went, and of those the ones that no longer waited for all to come.
class SplitKvBarrier {
  static constexpr int kArrive = 1, kLeave = 1 << 10, kTimedOut = 1 << 20;

 public:
  // `num_ctas`: how many come, fewer than 1024. `max_clocks`: that one waits for the others.
  __device__ SplitKvBarrier(int32_t* state, int num_ctas, int num_rows, int max_clocks)
      : state_(state),
        max_clocks_(max_clocks),
        num_ctas_(num_ctas),
        num_rows_(num_rows),
        // Divisions take time.
        rows_per_cta_(num_ctas >= num_rows ? 1 : (num_rows + num_ctas - 1) / num_ctas),
        num_merging_ctas_(num_ctas >= num_rows ? num_rows : (num_rows + rows_per_cta_ - 1) / rows_per_cta_) {}

  __device__ int rows_per_cta() const { return rows_per_cta_; }

  // After the CTA's partial result and, by a barrier, what its other threads wrote of it. The rows to merge.
  __device__ MergeRows arrive() {
    const int before = ptx::atom_add_acq_rel(state_, kArrive);
    const int merge_idx = num_arrived(before) - (num_ctas_ - num_merging_ctas_);
    merges_ = merge_idx >= 0;
    if (!merges_) return {0, 0};
    if (merge_idx + 1 == num_merging_ctas_)
      return before < kTimedOut ? share(merge_idx) : MergeRows{0, num_rows_};
    for (const int64_t start = clock64(); num_arrived(ptx::load_acquire(state_)) < num_ctas_;) {
      if (clock64() - start < max_clocks_) continue;
      state_at_leave_ = ptx::atom_add_acq_rel(state_, kLeave + kTimedOut);
      end();
      merges_ = false;
      // They may have come by now, and count on this one.
      if (num_arrived(state_at_leave_) == num_ctas_) break;
      return {0, 0};
    }
    return share(merge_idx);
  }

  // Goes, after come(): what it takes passes while rows are merged, until end().
  __device__ void leave() {
    if (merges_) state_at_leave_ = ptx::atom_add_acq_rel(state_, kLeave);
  }
  __device__ void end() const {
    if (merges_ && num_arrived(state_at_leave_) == num_ctas_ &&
        num_left_ctas(state_at_leave_) + 1 == num_merging_ctas_)
      *state_ = 0;
  }

 private:
  __device__ static int num_arrived(int state) { return state & (kLeave - 1); }
  __device__ static int num_left_ctas(int state) { return state / kLeave & (kTimedOut / kLeave - 1); }
  __device__ MergeRows share(int merge_idx) const {
    const int begin = merge_idx * rows_per_cta_;
    return {begin, min(begin + rows_per_cta_, num_rows_)};
  }

  int32_t* state_;
  int max_clocks_;
  int num_ctas_, num_rows_, rows_per_cta_, num_merging_ctas_;
  int state_at_leave_ = 0;
  bool merges_ = false;
};

// The rows that the CTA merges, until its first thread calls end(). All threads of the team call it.
template <class Team>
__device__ MergeRows arrive_and_wait(SplitKvBarrier& kv_barrier) {
  __shared__ MergeRows share;
  Team::sync();
  if (Team::thread() == 0) {
    share = kv_barrier.arrive();
    kv_barrier.leave();
  }
  Team::sync();
  return share;
}

}  // namespace attend::kernels::cuda
