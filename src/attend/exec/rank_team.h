// RankTeam: threads of the ranks that run the models of one engine, and their communicators.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/comm/cpu/rank_memory.h"
#include "attend/kernels/comm/cuda/peer_ranks.h"
#include "attend/tensor/communicator.h"

namespace attend {

// One thread calls run(): the engine's, which is rank 0 during a call. On the CPU the ranks share the threads
// of the process: each has a team of num_threads() / num_ranks.
class RankTeam {
 public:
  // `devices`: of the ranks, all CPUs or all GPUs. `slot_bytes`: GPUs, as for PeerRanks. `timeout`: longest
  // time that a rank waits for another one.
  RankTeam(const std::vector<Device>& devices, size_t slot_bytes, std::chrono::milliseconds timeout);
  // Waits for the ranks' threads.
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  int num_ranks() const { return memory_.barrier().num_ranks(); }
  // Valid during the lifetime of the team.
  Communicator& communicator(int rank) {
    return gpus_ ? gpus_->communicator(rank) : memory_.communicator(rank);
  }

  // Calls task(rank) for every rank, concurrently, and returns when all have returned. If a task throws,
  // collective operations of the others end with an error, run() throws Error(kInternal) with the rank and
  // its reason, and so do all later calls: the ranks' caches differ. Also throws if a rank does not return in
  // time.
  void run(const std::function<void(int rank)>& task);

  // GPUs: throws Error(kInternal) if a kernel has ended without the data of another rank.
  void check_completed();

  // Reason for which run() always throws; empty if it does not. Thread-safe.
  std::string failure() const { return memory_.barrier().failure(); }

 private:
  void rank_loop(int rank);
  void run_rank(int rank);
  void join();

  void abort(int rank, std::string_view reason);

  const std::vector<Device> devices_;  // by rank
  mutable kernels::cpu::RankMemory memory_;
  std::unique_ptr<kernels::cuda::PeerRanks> gpus_;  // null: CPUs
  std::vector<std::unique_ptr<ThreadTeam>> teams_;  // by rank
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int)>* task_ = nullptr;
  uint64_t num_runs_ = 0;
  int num_busy_ = 0;  // ranks above 0 that have not returned
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace attend
