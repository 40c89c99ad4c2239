// HealthProbe: checks that an engine computes, for any number of concurrent callers of /health_generate.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "attend/serve/http/exchange.h"

namespace attend::serve {

// Engine as the probe uses it.
struct ProbedEngine {
  // Returns the number of completed steps, or nothing if no request waits or runs.
  std::function<std::optional<int64_t>()> steps_while_busy;
  // Submits a small request. `done` may be called from any thread.
  std::function<void(std::function<void(bool healthy)> done)> submit;
};

// All callers share one probe. A busy engine is healthy if it completes a step, and receives no request of
// the probe; an idle engine computes one small request. Used on the I/O thread.
class HealthProbe {
 public:
  HealthProbe(Executor& executor, ProbedEngine engine, const char* unhealthy_message)
      : executor_(executor), engine_(std::move(engine)), unhealthy_message_(unhealthy_message) {}

  // Answers with 200, or with 503 if the engine fails or does not compute within kTimeout.
  void answer(const std::shared_ptr<Exchange>& exchange);
  // Number of requests of the probe that wait or run, 0 or 1. May be called from any thread.
  int num_submitted() const { return num_submitted_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kTimeout{20};
  enum class Result { kNone, kHealthy, kUnhealthy };

  void start();
  void poll() noexcept;
  Result check();
  void answer_all(Result result);

  Executor& executor_;
  ProbedEngine engine_;
  const char* unhealthy_message_;
  std::vector<std::shared_ptr<Exchange>> waiting_;
  bool is_running_ = false;
  std::optional<int64_t> first_steps_;  // of a busy engine, at the first check
  Clock::time_point deadline_;
  std::shared_ptr<std::atomic<Result>> submitted_;  // null: no request was submitted
  std::atomic<int> num_submitted_ = 0;
};

}  // namespace attend::serve
