// parallel_for on the process's single thread team. A second team would compete for the same cores and halve
// the speed of both.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// Function that is called once for each of num_tasks tasks.
struct TeamJob {
  void (*task)(void* context, int64_t task_idx, int thread_idx) = nullptr;
  void* context = nullptr;
  int64_t num_tasks = 0;
};

// Team of threads. The thread that calls run() is member 0. The team starts num_threads - 1 more threads and
// joins them in its destructor.
//
// A decode step has hundreds of jobs of some microseconds each, so an idle member spins for a short time
// before it sleeps. A job waits only for members that have joined it: if other processes use the cores, the
// members that are running do the work.
class ThreadTeam {
 public:
  // More than any machine has.
  static constexpr int kMaxThreads = 1024;

  // Throws Error(kInvalidArgument) for num_threads below 1 or above kMaxThreads, Error(kOutOfMemory) if the
  // system cannot start them.
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const { return static_cast<int>(members_.size()) + 1; }

  // Returns true if the calling thread runs a task of a team.
  static bool in_task();

  // Runs every task of the job and returns when all are done. Members fetch the next task when they are free.
  // Tasks that run concurrently have different thread_idx, all below num_threads(). If a task throws, tasks
  // that have not started are skipped, and one of the exceptions is rethrown. If called inside a task, or
  // while another thread's job runs, the job runs on the calling thread only, as thread 0.
  void run(const TeamJob& job);

 private:
  void stop();
  void member_loop(int thread_idx);
  void run_tasks(int thread_idx);
  void wait_for_job(uint64_t seen) const;
  void wait_for_members(uint64_t num_joined) const;

  // State of the job in one word: its number, whether it is open, and the number of members that joined it.
  static constexpr uint64_t kOpen = 1ull << 31;
  static constexpr uint64_t kNextJob = 1ull << 32;
  static constexpr uint64_t kNumJoined = kOpen - 1;

  std::mutex running_;  // held by the thread that called run()
  TeamJob job_;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> stopping_ = false;  // seen by members with the last job
  // Separate cache lines, since members poll one of them while others are updated.
  alignas(64) std::atomic<uint64_t> state_ = 0;
  alignas(64) std::atomic<int64_t> next_task_ = 0;
  alignas(64) std::atomic<uint64_t> num_left_ = 0;  // members that joined this job and have left it
  std::vector<std::thread> members_;
};

// Returns the CPUs that this process may use: its affinity mask, limited by its control group's quota
// (rounded up).
int num_available_cpus();

// Returns the size of the team: the last set_num_threads(), else OMP_NUM_THREADS, else num_available_cpus().
// Returns 1 inside a task.
int num_threads();
// Replaces the team. Throws Error(kInvalidArgument) below 1 or above ThreadTeam::kMaxThreads, and
// Error(kOutOfMemory) if the system cannot start the threads. Other threads may run jobs concurrently; these
// finish on the old team. Must not be called while a thread is in kernels::linear(), whose workspace is sized
// for the number of threads.
void set_num_threads(int num_threads);

// Runs a job on the process's team, like ThreadTeam::run. parallel_for is the convenient form.
void run_parallel(const TeamJob& job);

// Calls fn(task_idx, thread_idx) for every task_idx in [0, num_tasks), like ThreadTeam::run. thread_idx
// selects scratch memory; results must not depend on it.
template <class Fn>
void parallel_for(int64_t num_tasks, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  run_parallel({.task = [](void* context, int64_t task_idx,
                           int thread_idx) { (*static_cast<Callable*>(context))(task_idx, thread_idx); },
                .context = const_cast<void*>(static_cast<const void*>(std::addressof(fn))),
                .num_tasks = num_tasks});
}

// Calls fn(row) for every row; on the calling thread if there is too little work for a team.
template <class Fn>
void parallel_for_rows(int64_t num_rows, int64_t elements_per_row, const Fn& fn) {
  constexpr int64_t kMinElementsForTeam = 1 << 15;
  if (num_rows * elements_per_row < kMinElementsForTeam) {
    for (int64_t row = 0; row < num_rows; ++row) fn(row);
  } else {
    parallel_for(num_rows, [&fn](int64_t row, int) { fn(row); });
  }
}

}  // namespace attend
#pragma GCC visibility pop
