#include <chrono>
#include <system_error>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attend {
namespace {

using Clock = std::chrono::steady_clock;

// Time for which an idle member spins with its core to itself, and time for which it continues spinning with
// pauses that yield the core. Then it sleeps: waking it costs about as much as the total spin time.
constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr auto kSpinWithPauseTime = std::chrono::microseconds(200);

// Set while the thread runs tasks: a nested job runs on this thread only.
thread_local bool runs_task = false;

void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `done` returns true, or after kSpinWithPauseTime.
template <class Done>
bool spin_until(const Done& done) {
  const auto start = Clock::now();
  for (auto waited = Clock::duration(0); waited < kSpinWithPauseTime; waited = Clock::now() - start) {
    if (waited >= kSpinTime) std::this_thread::yield();
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause_core();
    }
  }
  return false;
}

void run_inline(const TeamJob& job) {
  for (int64_t task_idx = 0; task_idx < job.num_tasks; ++task_idx) job.task(job.context, task_idx, 0);
}

}  // namespace

ThreadTeam::ThreadTeam(int num_threads) {
  require(num_threads >= 1 && num_threads <= kMaxThreads, "num_threads ", num_threads, ": 1 to ",
          kMaxThreads);
  members_.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int thread_idx = 1; thread_idx < num_threads; ++thread_idx)
      members_.emplace_back([this, thread_idx] { member_loop(thread_idx); });
  } catch (const std::system_error& error) {
    const size_t num_started = members_.size() + 1;
    stop();
    fail(ErrorCode::kOutOfMemory, "num_threads ", num_threads, ": the system started ", num_started, ": ",
         error.what());
  }
}

ThreadTeam::~ThreadTeam() { stop(); }

void ThreadTeam::stop() {
  stopping_ = true;
  state_.fetch_add(kNextJob);
  state_.notify_all();
  for (std::thread& member : members_) member.join();
}

void ThreadTeam::run(const TeamJob& job) {
  std::unique_lock lock(running_, std::defer_lock);
  if (job.num_tasks <= 1 || members_.empty() || runs_task || !lock.try_lock()) return run_inline(job);
  job_ = job;
  next_task_.store(0, std::memory_order_relaxed);
  num_left_.store(0, std::memory_order_relaxed);
  // Publishes the job to members that join.
  state_.store((state_.load(std::memory_order_relaxed) / kNextJob + 1) * kNextJob | kOpen);
  state_.notify_all();

  run_tasks(0);
  const uint64_t closed = state_.fetch_and(~kOpen);
  wait_for_members(closed & kNumJoined);
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool ThreadTeam::in_task() { return runs_task; }

void ThreadTeam::run_tasks(int thread_idx) {
  runs_task = true;
  for (;;) {
    const int64_t task_idx = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task_idx >= job_.num_tasks || failed_.load(std::memory_order_relaxed)) break;
    try {
      job_.task(job_.context, task_idx, thread_idx);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  runs_task = false;
}

void ThreadTeam::member_loop(int thread_idx) {
  uint64_t seen = 0;
  for (;;) {
    wait_for_job(seen);
    uint64_t state = state_.load();
    if (stopping_) return;
    seen = state / kNextJob;
    bool joined = false;
    while (!joined && (state & kOpen) != 0 && state / kNextJob == seen)
      joined = state_.compare_exchange_weak(state, state + 1);
    if (!joined) continue;
    run_tasks(thread_idx);
    num_left_.fetch_add(1);
    num_left_.notify_one();
  }
}

void ThreadTeam::wait_for_job(uint64_t seen) const {
  const auto is_new = [&] { return state_.load() / kNextJob != seen; };
  if (spin_until(is_new)) return;
  for (uint64_t state = state_.load(); state / kNextJob == seen; state = state_.load()) state_.wait(state);
}

void ThreadTeam::wait_for_members(uint64_t num_joined) const {
  if (spin_until([&] { return num_left_.load() == num_joined; })) return;
  for (uint64_t left = num_left_.load(); left != num_joined; left = num_left_.load()) num_left_.wait(left);
}

}  // namespace attend
