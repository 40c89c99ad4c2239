#include "attend/kernels/cpu/parallel.h"

#include <omp.h>

#include <atomic>
#include <exception>

namespace attend::kernels::cpu {

int num_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

void run_parallel(int64_t num_tasks, ParallelTask task, void* context) {
  if (num_tasks == 1 || num_threads() == 1) {
    for (int64_t task_idx = 0; task_idx < num_tasks; ++task_idx) task(context, task_idx, 0);
    return;
  }
  // Always the whole team, however few the tasks: libgomp ends and restarts threads when a team's size
  // changes. An exception must not leave the region.
  std::exception_ptr error;
  std::atomic<bool> failed = false;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task_idx = 0; task_idx < num_tasks; ++task_idx) {
    if (failed.load(std::memory_order_relaxed)) continue;
    try {
      task(context, task_idx, omp_get_thread_num());
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace attend::kernels::cpu
