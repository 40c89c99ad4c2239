// StepTrace: where the time of steps goes, in the format that chrome://tracing and Perfetto show, and as NVTX
// ranges where a profiler looks for them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Description of a step, shown with its span.
struct StepShape {
  std::string_view mode;  // lives as long as the program; empty: no step, but a part of one
  int num_requests = 0;
  int num_tokens = 0;
};

// Recorded by one thread; started and stopped on any.
class StepTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // Forgets what was recorded and begins anew, for `num_steps` steps; 0: until stop(), or until kMaxSpans.
  // Throws Error(kUnsupported) while one is recorded.
  void start(int64_t num_steps);
  // The trace as JSON: {"traceEvents": [...], ...}. Throws Error(kUnsupported) unless one was started.
  std::string stop();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // A span of the step in hand. `name` lives as long as the program.
  void add(const char* name, Clock::time_point begin, Clock::time_point end);
  // The step itself, behind its spans.
  void add_step(const StepShape& shape, Clock::time_point begin, Clock::time_point end);

  static constexpr size_t kMaxSpans = 1'000'000;

 private:
  struct Span {
    const char* name;
    Clock::time_point begin, end;
    StepShape shape;
  };
  // Ends the recording where memory does.
  void keep(const Span& span);

  std::atomic<bool> recording_ = false;
  std::mutex mutex_;
  std::vector<Span> spans_;
  bool started_ = false;
  Clock::time_point start_;
  int64_t num_steps_left_ = 0;
};

// From here to the end of the scope.
class TraceSpan {
 public:
  // `trace`: null for NVTX alone. `name` lives as long as the program.
  TraceSpan(StepTrace* trace, const char* name);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  StepTrace* trace_;  // null: nothing is recorded
  const char* name_;
  StepTrace::Clock::time_point begin_;
};

}  // namespace attend
