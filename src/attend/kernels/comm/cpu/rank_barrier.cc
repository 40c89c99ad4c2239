#include "attend/kernels/comm/cpu/rank_barrier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "attend/base/error.h"
#include "attend/base/parallel.h"

namespace attend::kernels::cpu {
namespace {

// About the time in which another rank finishes a small GEMM.
constexpr int kSpins = 4000;
// Upper bound of a sleep: the wait checks its timeout in between.
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 100'000'000};

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a word of 32 bits");

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

RankBarrier::RankBarrier(int num_ranks, std::chrono::milliseconds timeout)
    : num_ranks_(num_ranks),
      timeout_(timeout),
      spins_(num_available_cpus() >= num_ranks),
      begun_(static_cast<size_t>(num_ranks)) {
  require(num_ranks >= 1, "num_ranks ", num_ranks, ": expected at least 1");
}

void RankBarrier::sleep(uint32_t epoch) const {
  // Returns at once if the epoch has changed, since the kernel compares it.
  syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&epoch_), FUTEX_WAIT_PRIVATE, epoch, &kSleep, nullptr,
          0);
}

void RankBarrier::wait(int rank, const char* operation) {
  if (aborted()) throw_failure();
  begun_[static_cast<size_t>(rank)].fetch_add(1, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_acquire);
  if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_ranks_) {
    num_arrived_.store(0, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    wake_all(epoch_);
  } else {
    for (int i = 0; spins_ && i < kSpins && epoch_.load(std::memory_order_acquire) == epoch; ++i) pause_cpu();
    std::chrono::steady_clock::time_point deadline;
    while (epoch_.load(std::memory_order_acquire) == epoch) {
      const auto now = std::chrono::steady_clock::now();
      if (deadline.time_since_epoch().count() == 0) deadline = now + timeout_;
      if (now >= deadline) throw_timeout(rank, operation);
      sleep(epoch);
    }
  }
  if (aborted()) throw_failure();
}

void RankBarrier::abort(int rank, std::string_view reason) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted()) return;
    failure_ = "rank " + std::to_string(rank) + ": " + std::string(reason);
    aborted_.store(true, std::memory_order_release);
  }
  epoch_.fetch_add(1, std::memory_order_release);
  wake_all(epoch_);
}

std::string RankBarrier::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RankBarrier::throw_failure() const { fail(ErrorCode::kInternal, "a rank failed: ", failure()); }

void RankBarrier::throw_timeout(int rank, const char* operation) const {
  const uint64_t own = begun_[static_cast<size_t>(rank)].load(std::memory_order_relaxed);
  std::string late;
  for (int other = 0; other < num_ranks_; ++other)
    if (const uint64_t begun = begun_[static_cast<size_t>(other)].load(std::memory_order_relaxed);
        begun < own)
      late +=
          (late.empty() ? "rank " : ", rank ") + std::to_string(other) + " after " + std::to_string(begun);
  fail(ErrorCode::kInternal, operation, ": wait ", own, " of rank ", rank, " timed out after ",
       timeout_.count(), " ms; missing: ", late);
}

}  // namespace attend::kernels::cpu
