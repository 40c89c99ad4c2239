#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "attend/base/parallel.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

// Runs fn(task_idx, thread_idx) on the team.
template <class Fn>
void run(ThreadTeam& team, int64_t num_tasks, Fn fn) {
  team.run({.task = [](void* context, int64_t task_idx,
                       int thread_idx) { (*static_cast<Fn*>(context))(task_idx, thread_idx); },
            .context = &fn,
            .num_tasks = num_tasks});
}

// Limits on processes or memory may not permit the default number of threads. Sanitizers need more address
// space than this limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(SetNumThreads, StartsNoDefaultTeamFirst) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto set = [] {
    setenv("OMP_NUM_THREADS", "1024", 1);
    rlimit few{};
    getrlimit(RLIMIT_AS, &few);
    few.rlim_cur = size_t{512} << 20;  // too little for the stacks of a thousand threads
    setrlimit(RLIMIT_AS, &few);
    set_num_threads(2);
    _exit(num_threads() == 2 ? 0 : 1);
  };
  EXPECT_EXIT(set(), testing::ExitedWithCode(0), "");
}
#endif

TEST(ThreadTeam, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadTeam team(num_threads);
    EXPECT_EQ(team.num_threads(), num_threads);
    for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(num_tasks));
      run(team, num_tasks, [&](int64_t task_idx, int) { ++times[static_cast<size_t>(task_idx)]; });
      for (const auto& count : times) EXPECT_EQ(count, 1);
    }
  }
}

// Runs jobs back to back, and jobs that start when the threads are asleep.
TEST(ThreadTeam, FinishesEachJobBeforeItReturns) {
  ThreadTeam team(4);
  std::vector<int> values(64);
  for (int job = 0; job < 20000; ++job) {
    run(team, 64, [&](int64_t task_idx, int) { values[static_cast<size_t>(task_idx)] += 1; });
    if (job % 4000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_THAT(values, testing::Each(job + 1));
  }
}

TEST(ThreadTeam, ConcurrentTasksHaveDifferentThreadIndices) {
  ThreadTeam team(4);
  std::vector<std::atomic<bool>> busy(4);
  std::atomic<int> num_conflicts = 0;
  run(team, 2000, [&](int64_t, int thread_idx) {
    if (busy[static_cast<size_t>(thread_idx)].exchange(true)) ++num_conflicts;
    std::this_thread::yield();
    busy[static_cast<size_t>(thread_idx)] = false;
  });
  EXPECT_EQ(num_conflicts, 0);
}

// Each task waits for the others, so the tasks finish only if each has a thread.
TEST(ThreadTeam, RunsTasksConcurrently) {
  ThreadTeam team(3);
  std::atomic<int> arrived = 0;
  run(team, 3, [&](int64_t, int) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
}

TEST(ThreadTeam, RunsAJobInsideATaskOnThatThread) {
  ThreadTeam team(4);
  std::atomic<int> inner_tasks = 0, num_other_threads = 0;
  run(team, 8, [&](int64_t, int) {
    const auto self = std::this_thread::get_id();
    run(team, 5, [&](int64_t, int thread_idx) {
      ++inner_tasks;
      if (thread_idx != 0 || std::this_thread::get_id() != self) ++num_other_threads;
    });
  });
  EXPECT_EQ(inner_tasks, 40);
  EXPECT_EQ(num_other_threads, 0);
}

TEST(ThreadTeam, RunsJobsOfSeveralCallersConcurrently) {
  ThreadTeam team(2);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int job = 0; job < 500; ++job) run(team, 10, [&](int64_t task_idx, int) { sum += task_idx; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 45);
}

TEST(ThreadTeam, RethrowsExceptionsOfTasksAndContinues) {
  ThreadTeam team(3);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> started = 0;
    EXPECT_THROW(run(team, 100000,
                     [&](int64_t, int) {
                       ++started;
                       throw std::runtime_error("task");
                     }),
                 std::runtime_error);
    EXPECT_LE(started, 3);
    std::atomic<int> done = 0;
    run(team, 10, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done, 10);
  }
}

TEST(ThreadTeam, ClearsTheTaskStateAfterAJob) {
  ThreadTeam team(2);
  run(team, 4, [](int64_t, int) { EXPECT_TRUE(ThreadTeam::in_task()); });
  EXPECT_FALSE(ThreadTeam::in_task());
}

TEST(ThreadTeam, RejectsZeroThreads) {
  EXPECT_THAT(testing_support::error_message(ErrorCode::kInvalidArgument, [] { ThreadTeam team(0); }),
              testing::HasSubstr("num_threads 0: 1 to 1024"));
}

TEST(Parallel, RejectsMoreThreadsThanTheSystemCanStart) {
  EXPECT_THAT(testing_support::error_message(ErrorCode::kInvalidArgument, [] { set_num_threads(40000); }),
              testing::HasSubstr("num_threads 40000: 1 to 1024"));
  EXPECT_GE(num_threads(), 1);
}

TEST(Parallel, SplitsWorkOverTheGlobalTeam) {
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  std::atomic<int> arrived = 0;
  parallel_for(3, [&](int64_t, int) {
    EXPECT_EQ(num_threads(), 1);
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  set_num_threads(num_available_cpus());
}

// Replaces the team while jobs run on it and other jobs start.
TEST(Parallel, ChangesTheNumberOfThreadsDuringJobs) {
  constexpr int kNumCallers = 2, kNumJobs = 300, kNumTasks = 32;
  std::atomic<int64_t> num_done = 0;
  std::atomic<int> callers_left = kNumCallers;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kNumCallers; ++caller)
    callers.emplace_back([&] {
      for (int job = 0; job < kNumJobs; ++job) parallel_for(kNumTasks, [&](int64_t, int) { ++num_done; });
      --callers_left;
    });
  for (int i = 0; callers_left > 0; ++i) set_num_threads(1 + i % 3);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(num_done, kNumCallers * kNumJobs * kNumTasks);
  set_num_threads(num_available_cpus());
}

// A job that started with three threads finishes with them after the number is set to one.
TEST(Parallel, FinishesAJobOnTheTeamThatStartedIt) {
  set_num_threads(3);
  std::atomic<int> arrived = 0;
  parallel_for(3, [&](int64_t task_idx, int) {
    if (task_idx == 0) set_num_threads(1);
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  EXPECT_EQ(num_threads(), 1);
  set_num_threads(num_available_cpus());
}

TEST(Parallel, UsesAtMostOneThreadPerCpu) {
  EXPECT_GE(num_available_cpus(), 1);
  EXPECT_LE(num_available_cpus(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace attend
