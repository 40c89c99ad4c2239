// The one team of threads that runs every CPU kernel, oneDNN's too: OpenMP's. A second team would spin beside
// it and halve both.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace attend::kernels::cpu {

// Threads that parallel_for uses: OMP_NUM_THREADS, or omp_set_num_threads() of the calling thread, or every
// CPU that the process may run on.
int num_threads();

using ParallelTask = void (*)(void* context, int64_t task_idx, int thread_idx);
void run_parallel(int64_t num_tasks, ParallelTask task, void* context);

// Calls fn(task_idx, thread_idx) for every task_idx in [0, num_tasks); threads take the next task as they
// become free. No two calls that run at once have the same thread_idx, which is below num_threads() and is
// meant to choose scratch memory: what a task computes must not depend on it. Returns when all tasks are
// done. When tasks throw, tasks that have not begun are left out, and one of the exceptions is rethrown.
// Inside another parallel_for it runs on the calling thread alone, as thread 0.
template <class Fn>
void parallel_for(int64_t num_tasks, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  run_parallel(
      num_tasks,
      [](void* context, int64_t task_idx, int thread_idx) {
        (*static_cast<Callable*>(context))(task_idx, thread_idx);
      },
      const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
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

}  // namespace attend::kernels::cpu
