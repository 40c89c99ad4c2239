// How the CTAs of a work tile share the merge of its partial results: one SM would read them too slowly.
// As many of them as there are rows, those that come last, wait for the others, then each merges some: one
// with few keys, which comes long before, need not wait. Which one merges which row changes no bit, and
// nobody relies on who waits: CTAs that have not begun may need the place of one that waits, so none waits
// long, and the last to come merges all rows where one has gone.
#pragma once

#include "attend/kernels/common/cuda/ptx/atomic.cuh"

namespace attend::kernels::cuda {

// Rows [begin, end) of a work tile.
struct RowShare {
  int begin, end;
};

// Of one thread of a CTA. The state is an int of the work tile, 0 before and after: CTAs that came, CTAs with
// a share that went, and of those the ones that no longer waited for all to come.
class Meeting {
  static constexpr int kCame = 1, kWent = 1 << 10, kEarly = 1 << 20;

 public:
  // `num_ctas`: how many come, fewer than 1024. `max_clocks`: that one waits for the others.
  __device__ Meeting(int32_t* state, int num_ctas, int num_rows, int max_clocks)
      : state_(state),
        max_clocks_(max_clocks),
        num_ctas_(num_ctas),
        num_rows_(num_rows),
        // Divisions take time.
        rows_of_share_(num_ctas >= num_rows ? 1 : (num_rows + num_ctas - 1) / num_ctas),
        num_shares_(num_ctas >= num_rows ? num_rows : (num_rows + rows_of_share_ - 1) / rows_of_share_) {}

  __device__ int rows_of_share() const { return rows_of_share_; }

  // After the CTA's partial result and, by a barrier, what its other threads wrote of it. The rows to merge.
  __device__ RowShare come() {
    const int before = ptx::atom_add_acq_rel(state_, kCame);
    const int share_idx = came(before) - (num_ctas_ - num_shares_);
    stays_ = share_idx >= 0;
    if (!stays_) return {0, 0};
    if (share_idx + 1 == num_shares_) return before < kEarly ? share(share_idx) : RowShare{0, num_rows_};
    for (const int64_t start = clock64(); came(ptx::load_acquire(state_)) < num_ctas_;) {
      if (clock64() - start < max_clocks_) continue;
      before_going_ = ptx::atom_add_acq_rel(state_, kWent + kEarly);
      end();
      stays_ = false;
      // They may have come by now, and count on this one.
      if (came(before_going_) == num_ctas_) break;
      return {0, 0};
    }
    return share(share_idx);
  }

  // Goes, after come(): what it takes passes while rows are merged, until end().
  __device__ void go() {
    if (stays_) before_going_ = ptx::atom_add_acq_rel(state_, kWent);
  }
  __device__ void end() const {
    if (stays_ && came(before_going_) == num_ctas_ && went(before_going_) + 1 == num_shares_) *state_ = 0;
  }

 private:
  __device__ static int came(int state) { return state & (kWent - 1); }
  __device__ static int went(int state) { return state / kWent & (kEarly / kWent - 1); }
  __device__ RowShare share(int share_idx) const {
    const int begin = share_idx * rows_of_share_;
    return {begin, min(begin + rows_of_share_, num_rows_)};
  }

  int32_t* state_;
  int max_clocks_;
  int num_ctas_, num_rows_, rows_of_share_, num_shares_;
  int before_going_ = 0;
  bool stays_ = false;
};

// The rows that the CTA merges, until its first thread calls end(). All threads of the team call it.
template <class Team>
__device__ RowShare meet(Meeting& meeting) {
  __shared__ RowShare share;
  Team::sync();
  if (Team::thread() == 0) {
    share = meeting.come();
    meeting.go();
  }
  Team::sync();
  return share;
}

}  // namespace attend::kernels::cuda
