// RankBarrier: point that threads of several ranks reach together, or leave with an error if one of them
// fails.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace attend::kernels::cpu {

class RankBarrier {
 public:
  // `timeout`: longest time that a rank waits for another one.
  RankBarrier(int num_ranks, std::chrono::milliseconds timeout);

  int num_ranks() const { return num_ranks_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Returns when all ranks have called it. What each rank wrote before is visible to all ranks afterwards. A
  // waiting thread spins for a short time if each rank has a CPU, and then sleeps on a futex. `operation`:
  // name for messages, with static storage duration. Throws Error(kInternal) after abort(), and if a rank
  // does not arrive in time.
  void wait(int rank, const char* operation);

  // Ends all waits of all ranks, now and later, with an error. The first reason remains. Thread-safe.
  void abort(int rank, std::string_view reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  // "rank 1: <reason of its abort>"; empty before an abort. Thread-safe.
  std::string failure() const;

 private:
  [[noreturn]] void throw_failure() const;
  [[noreturn]] void throw_timeout(int rank, const char* operation) const;
  void sleep(uint32_t epoch) const;

  const int num_ranks_;
  const std::chrono::milliseconds timeout_;
  const bool spins_;
  std::atomic<bool> aborted_ = false;
  // Number of waits that each rank has begun, for the message of a timeout.
  std::vector<std::atomic<uint64_t>> begun_;
  // Changes when all ranks have arrived, and with an abort: threads sleep while it keeps its value.
  alignas(64) std::atomic<uint32_t> epoch_ = 0;
  alignas(64) std::atomic<int> num_arrived_ = 0;
  mutable std::mutex mutex_;
  std::string failure_;
};

}  // namespace attend::kernels::cpu
