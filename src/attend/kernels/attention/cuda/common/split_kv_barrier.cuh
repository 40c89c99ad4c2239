// Barrier of the CTAs of a work tile that share the merge of its partial results; a single SM would take too
// long to read them. The last CTAs to arrive, one per row, wait for the others, and then each merges some
// rows. A CTA with few keys arrives long before and does not wait. Results do not depend on which CTA merges
// which row. Correctness does not depend on waiting, since CTAs that have not started may need the SM of a
// waiting CTA: waiting has a timeout, and if a CTA timed out, the last CTA to arrive merges all rows.
#pragma once

#include "attend/kernels/common/cuda/ptx/atomic.cuh"

namespace attend::kernels::cuda {

// Rows [begin, end) of a work tile.
struct MergeRows {
  int begin, end;
};

// Used by one thread of a CTA. The state is an int per work tile, 0 before and after. It counts CTAs that
// arrived, CTAs with a share that left, and those of the latter that timed out before all had arrived.
class SplitKvBarrier {
  static constexpr int kArrive = 1, kLeave = 1 << 10, kTimedOut = 1 << 20;

 public:
  // `num_ctas`: CTAs that arrive, fewer than 1024. `max_clocks`: timeout.
  __device__ SplitKvBarrier(int32_t* state, int num_ctas, int num_rows, int max_clocks)
      : state_(state),
        max_clocks_(max_clocks),
        num_ctas_(num_ctas),
        num_rows_(num_rows),
        // Avoids divisions, which are slow.
        rows_per_cta_(num_ctas >= num_rows ? 1 : (num_rows + num_ctas - 1) / num_ctas),
        num_merging_ctas_(num_ctas >= num_rows ? num_rows : (num_rows + rows_per_cta_ - 1) / rows_per_cta_) {}

  __device__ int rows_per_cta() const { return rows_per_cta_; }

  // Called after the CTA's partial result and a barrier that orders the writes of its other threads. Returns
  // the rows to merge.
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
      // All CTAs may have arrived since the last check, and expect this one to merge.
      if (num_arrived(state_at_leave_) == num_ctas_) break;
      return {0, 0};
    }
    return share(merge_idx);
  }

  // Leaves after arrive(): the latency of the atomic overlaps with the merge of rows, until end().
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

// Returns the rows that the CTA merges; its first thread must then call end(). Called by all threads of the
// team.
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
