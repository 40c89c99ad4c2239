// parallel_for over the process's one team of threads. A second team would spin beside it and halve both.
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

// One function, called once for each of num_tasks tasks.
struct TeamJob {
  void (*task)(void* context, int64_t task_idx, int thread_idx) = nullptr;
  void* context = nullptr;
  int64_t num_tasks = 0;
};

// The calling thread of run() is member 0; the team starts num_threads - 1 more, and ends them with itself.
//
// A decode step has hundreds of jobs of some microseconds, so a member that has nothing to do watches for the
// next job for a moment before it sleeps. A job waits only for members that have joined it: on a machine
// whose cores are busy otherwise, whoever is there does the work.
class ThreadTeam {
 public:
  // More than any machine has.
  static constexpr int kMaxThreads = 1024;

  // Throws Error(kInvalidArgument) for num_threads below 1 or above kMaxThreads, Error(kOutOfMemory) when the
  // system starts fewer.
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const { return static_cast<int>(members_.size()) + 1; }

  // Whether the calling thread runs a task of a team.
  static bool in_task();

  // Runs every task of the job and returns when all are done; members take the next task as they become free.
  // No two tasks that run at once have the same thread_idx, which is below num_threads(). When tasks throw,
  // tasks that have not begun are left out, and one of the exceptions is rethrown. Called inside a task, or
  // while another thread's job runs, it runs the job on the calling thread alone, as thread 0.
  void run(const TeamJob& job);

 private:
  void stop();
  void member_loop(int thread_idx);
  void run_tasks(int thread_idx);
  void wait_for_job(uint64_t seen) const;
  void wait_for_members(uint64_t num_joined) const;

  // Who may join, in one word: a job's number, whether it is open, and how many have joined it.
  static constexpr uint64_t kOpen = 1ull << 31;
  static constexpr uint64_t kNextJob = 1ull << 32;
  static constexpr uint64_t kNumJoined = kOpen - 1;

  std::mutex running_;  // held by the thread whose job runs
  TeamJob job_;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> stopping_ = false;  // told to members as a last job
  // On cache lines of their own: members watch one while they count on the others.
  alignas(64) std::atomic<uint64_t> state_ = 0;
  alignas(64) std::atomic<int64_t> next_task_ = 0;
  alignas(64) std::atomic<uint64_t> num_left_ = 0;  // members that joined this job and have left it
  std::vector<std::thread> members_;
};

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
  constexpr int64_t kMinElementsForTeam = 1 << 15;
  if (num_rows * elements_per_row < kMinElementsForTeam) {
    for (int64_t row = 0; row < num_rows; ++row) fn(row);
  } else {
    parallel_for(num_rows, [&fn](int64_t row, int) { fn(row); });
  }
}

}  // namespace attend
#pragma GCC visibility pop
