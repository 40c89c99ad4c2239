#include "attend/serve/protocols/monitoring/health_probe.h"

#include <algorithm>
#include <utility>

#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

constexpr std::chrono::milliseconds kPollInterval{5};

}  // namespace

void HealthProbe::answer(const std::shared_ptr<Exchange>& exchange) {
  waiting_.push_back(exchange);
  exchange->on_disconnect = [this, gone = exchange.get()](int) {
    std::erase_if(waiting_, [&](const auto& each) { return each.get() == gone; });
  };
  if (!std::exchange(is_running_, true)) start();
}

void HealthProbe::start() {
  deadline_ = Clock::now() + kTimeout;
  first_steps_.reset();
  poll();
}

HealthProbe::Result HealthProbe::check() {
  if (submitted_) return *submitted_;
  if (const auto steps = engine_.steps_while_busy()) {
    if (!first_steps_) first_steps_ = *steps;
    return *steps > *first_steps_ ? Result::kHealthy : Result::kNone;
  }
  submitted_ = std::make_shared<std::atomic<Result>>(Result::kNone);
  ++num_submitted_;
  try {
    engine_.submit(
        [result = submitted_](bool healthy) { *result = healthy ? Result::kHealthy : Result::kUnhealthy; });
  } catch (...) {
    *submitted_ = Result::kUnhealthy;
  }
  return *submitted_;
}

// If there is no memory for the next poll, the callers get an answer at once.
void HealthProbe::poll() noexcept {
  Result result = Result::kUnhealthy;
  const auto failed = catch_error([&] {
    result = check();
    if (result == Result::kNone && Clock::now() >= deadline_) result = Result::kUnhealthy;
    if (result == Result::kNone) executor_.after(kPollInterval, [this] { poll(); });
  });
  if (failed) result = Result::kUnhealthy;
  if (result != Result::kNone) answer_all(result);
}

void HealthProbe::answer_all(Result result) {
  if (submitted_ && *submitted_ != Result::kNone) {
    submitted_ = nullptr;
    num_submitted_ = 0;
  }
  is_running_ = false;
  for (const auto& exchange : std::exchange(waiting_, {})) {
    exchange->on_disconnect = nullptr;
    try {
      if (result == Result::kHealthy)
        exchange->reply(200, "text/plain", "");
      else
        answer_error(*exchange, "/health_generate", {503, unhealthy_message_, {}, "unhealthy"});
    } catch (...) {
      exchange->abandon();
    }
  }
}

}  // namespace attend::serve
