#include "attend/base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/team_scope.h"

namespace attend {
namespace {

// Returns the CPUs in the scheduler's affinity mask, which containers and taskset restrict.
int affinity_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  // More than 1,024 CPUs do not fit the mask.
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
    return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&cpus);
}

// Returns the CPU quota of the control group: "max 100000", or microseconds of CPU time and their period
// (Linux's admin-guide/cgroup-v2, cpu.max). 0: no limit.
int quota_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  int64_t quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>((quota + period - 1) / period);
}

int default_num_threads() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  const long num_threads = value != nullptr ? std::strtol(value, nullptr, 10) : 0;
  return num_threads >= 1 ? static_cast<int>(std::min<long>(num_threads, ThreadTeam::kMaxThreads))
                          : num_available_cpus();
}

// The process's team. The thread that runs a job also holds a reference, so a replaced team lives until then.
class TeamHolder {
 public:
  // Creates the team at first use, so that a process that never computes, or sets the number of threads
  // first, starts no threads of a default team.
  std::shared_ptr<ThreadTeam> get() {
    const std::lock_guard lock(mutex_);
    if (!team_) team_ = std::make_shared<ThreadTeam>(default_num_threads());
    return team_;
  }
  // The old team's threads end with its last job.
  void replace(std::shared_ptr<ThreadTeam> team) {
    const std::lock_guard lock(mutex_);
    team_.swap(team);
  }
  // Forgets the team in the child of a fork, which has none of its threads, and makes a new one at first use.
  void begin_child() {
    new (&mutex_) std::mutex;                           // another thread of the parent may have held it
    new std::shared_ptr<ThreadTeam>(std::move(team_));  // its destructor would wait for the threads
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<ThreadTeam> team_;
};

// Never destroyed: a thread may compute while the process exits.
TeamHolder& current_team() {
  static TeamHolder& team = [&]() -> TeamHolder& {
    pthread_atfork(nullptr, nullptr, [] { current_team().begin_child(); });
    return *new TeamHolder;
  }();
  return team;
}

// Team of a TeamScope; null: the process's.
thread_local ThreadTeam* scoped_team = nullptr;

}  // namespace

TeamScope::TeamScope(ThreadTeam& team) : outer_(std::exchange(scoped_team, &team)) {}

TeamScope::~TeamScope() { scoped_team = outer_; }

int num_available_cpus() {
  const int cpus = std::max(1, affinity_cpus()), quota = quota_cpus();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

int num_threads() {
  if (ThreadTeam::in_task()) return 1;
  return scoped_team != nullptr ? scoped_team->num_threads() : current_team().get()->num_threads();
}

void set_num_threads(int num_threads) { current_team().replace(std::make_shared<ThreadTeam>(num_threads)); }

void run_parallel(const TeamJob& job) {
  if (scoped_team != nullptr) return scoped_team->run(job);
  const std::shared_ptr<ThreadTeam> team = current_team().get();
  team->run(job);
}

}  // namespace attend
