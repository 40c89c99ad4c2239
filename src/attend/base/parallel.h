// parallel_for over the process's one team of threads. A second team would spin beside it and halve both.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "attend/base/thread_team.h"

#pragma GCC visibility push(default)
namespace attend {

// CPUs that this process may use: its affinity mask, and no more than its control group's quota (rounded up).
int num_available_cpus();

// Threads of the team: what set_num_threads() said last, or OMP_NUM_THREADS, or num_available_cpus(). 1
// inside a task.
int num_threads();
// Replaces the team. Throws Error(kInvalidArgument) below 1 or above ThreadTeam::kMaxThreads, and
// Error(kOutOfMemory) when the system starts fewer. Other threads may run jobs meanwhile: these end on the
// team they began on. Not while one is in kernels::linear(), whose workspace is for a number of threads.
void set_num_threads(int num_threads);

// Runs a job on the process's team, as ThreadTeam::run does. parallel_for is the convenient form.
void run_parallel(const TeamJob& job);

// Calls fn(task_idx, thread_idx) for every task_idx in [0, num_tasks), as ThreadTeam::run does. thread_idx is
// meant to choose scratch memory: what a task computes must not depend on it.
template <class Fn>
void parallel_for(int64_t num_tasks, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  run_parallel({.task = [](void* context, int64_t task_idx,
                           int thread_idx) { (*static_cast<Callable*>(context))(task_idx, thread_idx); },
                .context = const_cast<void*>(static_cast<const void*>(std::addressof(fn))),
                .num_tasks = num_tasks});
}

// Calls fn(row) for every row; on the calling thread when there is too little to wake a team for.
template <class Fn>
void parallel_for_rows(int64_t num_rows, int64_t elements_per_row, const Fn& fn) {
  constexpr int64_t kWorthATeam = 1 << 15;
  if (num_rows * elements_per_row < kWorthATeam) {
    for (int64_t row = 0; row < num_rows; ++row) fn(row);
  } else {
    parallel_for(num_rows, [&fn](int64_t row, int) { fn(row); });
  }
}

}  // namespace attend
#pragma GCC visibility pop
