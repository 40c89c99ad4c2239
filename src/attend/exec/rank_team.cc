#include "attend/exec/rank_team.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "attend/base/error.h"
#include "attend/base/team_scope.h"
#include "attend/tensor/cuda.h"

namespace attend {

RankTeam::RankTeam(const std::vector<Device>& devices, size_t slot_bytes, std::chrono::milliseconds timeout)
    : devices_(devices), memory_(static_cast<int>(devices.size()), timeout) {
  const int num_ranks = this->num_ranks();
  const bool on_gpus = devices.front().type == DeviceType::kCuda;
  if (on_gpus) gpus_ = std::make_unique<kernels::cuda::PeerRanks>(devices, slot_bytes, timeout);
  const int threads_per_rank = on_gpus ? 1 : std::max(1, num_threads() / num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank)
    teams_.push_back(std::make_unique<ThreadTeam>(threads_per_rank));
  try {
    for (int rank = 1; rank < num_ranks; ++rank) threads_.emplace_back([this, rank] { rank_loop(rank); });
  } catch (...) {
    join();
    throw;
  }
}

RankTeam::~RankTeam() { join(); }

void RankTeam::join() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankTeam::rank_loop(int rank) {
  pthread_setname_np(pthread_self(), ("attend-rank-" + std::to_string(rank)).c_str());
  for (uint64_t num_seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return stopping_ || num_runs_ > num_seen; });
      if (stopping_) return;
      num_seen = num_runs_;
    }
    run_rank(rank);
    {
      const std::lock_guard lock(mutex_);
      --num_busy_;
    }
    end_.notify_one();
  }
}

// Exceptions must not leave a rank's thread.
void RankTeam::run_rank(int rank) {
  const TeamScope scope(*teams_[static_cast<size_t>(rank)]);
  try {
    std::optional<cuda::DeviceScope> device;
    if (gpus_) device.emplace(devices_[static_cast<size_t>(rank)]);
    (*task_)(rank);
  } catch (const std::exception& error) {
    abort(rank, error.what());
  } catch (...) {
    abort(rank, "not a std::exception");
  }
}

void RankTeam::abort(int rank, std::string_view reason) {
  memory_.barrier().abort(rank, reason);
  if (gpus_) gpus_->stop();
}

void RankTeam::check_completed() {
  if (!gpus_ || !gpus_->stopped()) return;
  abort(0, "a GPU waited for another one for longer than " +
               std::to_string(memory_.barrier().timeout().count()) + " ms");
  fail(ErrorCode::kInternal, "a rank failed: ", failure());
}

void RankTeam::run(const std::function<void(int rank)>& task) {
  kernels::cpu::RankBarrier& barrier = memory_.barrier();
  if (barrier.aborted()) fail(ErrorCode::kInternal, "a rank failed before: ", barrier.failure());
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    num_busy_ = num_ranks() - 1;
    ++num_runs_;
  }
  begin_.notify_all();
  run_rank(0);
  std::unique_lock lock(mutex_);
  // Ranks that wait in a collective operation end by its timeout, so that one which computes too long is
  // left.
  if (!end_.wait_for(lock, 2 * barrier.timeout(), [&] { return num_busy_ == 0; })) {
    abort(0, std::to_string(num_busy_) + " ranks have not returned from a step");
    // They use the task and the engine's memory, which must not be freed.
    end_.wait(lock, [&] { return num_busy_ == 0; });
  }
  if (barrier.aborted()) fail(ErrorCode::kInternal, "a rank failed: ", barrier.failure());
}

}  // namespace attend
