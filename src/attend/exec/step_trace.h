// StepTrace: time spans of steps in the format of chrome://tracing and Perfetto, and as NVTX ranges for
// profilers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Description of a step, shown with its span.
struct StepShape {
  std::string_view mode;  // has static storage duration; empty: the span is part of a step
  int num_requests = 0;
  int num_tokens = 0;
};

// One thread records. Any thread may start and stop.
class StepTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // Discards recorded spans and records `num_steps` steps; 0: until stop(), or until kMaxSpans. Throws
  // Error(kUnsupported) while a trace is being recorded.
  void start(int64_t num_steps);
  // Ends the trace and returns it as JSON: {"traceEvents": [...], ...}. Throws Error(kUnsupported) if no
  // trace was started.
  std::string stop();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // Stops the trace and writes it to a file. Throws like stop(), and Error(kInvalidArgument) if the file
  // cannot be written.
  void stop_to_file(const std::filesystem::path& path);

  // Rows of the trace: work of the host, and of the device, which computes one step while the host prepares
  // another.
  enum class Row : int8_t { kHost = 1, kDevice };

  // Adds a span of the current step. `name` has static storage duration.
  void add(const char* name, Clock::time_point begin, Clock::time_point end, Row row = Row::kHost);
  // Adds the span of the step itself, after the spans of its parts.
  void add_step(const StepShape& shape, Clock::time_point begin, Clock::time_point end);

  static constexpr size_t kMaxSpans = 1'000'000;

 private:
  struct Span {
    const char* name;
    Clock::time_point begin, end;
    StepShape shape;
    Row row = Row::kHost;
  };
  // Stops the recording if memory cannot be allocated.
  void keep(const Span& span);

  std::atomic<bool> recording_ = false;
  std::mutex mutex_;
  std::vector<Span> spans_;
  bool started_ = false;
  Clock::time_point start_;
  int64_t num_steps_left_ = 0;
};

// Records a span from construction to the end of the scope.
class TraceSpan {
 public:
  // `trace`: null for NVTX only. `name` has static storage duration.
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
