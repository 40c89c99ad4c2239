#include "attend/exec/step_trace.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include <fstream>
#include <new>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

#if __has_include(<nvtx3/nvToolsExt.h>)
void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }
#else
void begin_range(const char*) {}
void end_range() {}
#endif

std::string microseconds(StepTrace::Clock::duration time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  std::string fraction = std::to_string(ns % 1000);
  fraction.insert(0, 3 - fraction.size(), '0');
  return std::to_string(ns / 1000) + "." + fraction;
}

}  // namespace

void StepTrace::start(int64_t num_steps) {
  const std::lock_guard lock(mutex_);
  if (started_)
    fail(ErrorCode::kUnsupported, "a profile is being recorded: stop it before another is started");
  spans_.clear();
  started_ = true;
  start_ = Clock::now();
  num_steps_left_ = num_steps > 0 ? num_steps : INT64_MAX;
  recording_ = true;
}

std::string StepTrace::stop() {
  std::vector<Span> spans;
  Clock::time_point start;
  {
    const std::lock_guard lock(mutex_);
    if (!started_) fail(ErrorCode::kUnsupported, "no profile is being recorded: start one first");
    recording_ = started_ = false;
    spans = std::exchange(spans_, {});
    start = start_;
  }
  std::string json = R"({"displayTimeUnit": "ms", "traceEvents": [
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "engine"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "device"}})";
  for (const Span& span : spans) {
    json += ",\n{\"name\": \"" + std::string(span.name) + R"(", "ph": "X", "pid": 1, "tid": )" +
            std::to_string(static_cast<int>(span.row)) + ", \"ts\": " + microseconds(span.begin - start) +
            ", \"dur\": " + microseconds(span.end - span.begin);
    if (!span.shape.mode.empty())
      json += ", \"args\": {\"mode\": \"" + std::string(span.shape.mode) +
              "\", \"requests\": " + std::to_string(span.shape.num_requests) +
              ", \"tokens\": " + std::to_string(span.shape.num_tokens) + "}";
    json += "}";
  }
  return json + "\n]}\n";
}

void StepTrace::stop_to_file(const std::filesystem::path& path) {
  std::ofstream file(path);
  file << stop();
  file.close();
  require(file.good(), path, ": cannot be written");
}

void StepTrace::add(const char* name, Clock::time_point begin, Clock::time_point end, Row row) {
  const std::lock_guard lock(mutex_);
  keep({name, begin, end, {}, row});
}

void StepTrace::add_step(const StepShape& shape, Clock::time_point begin, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  keep({"step", begin, end, shape});
  if (--num_steps_left_ == 0) recording_ = false;
}

void StepTrace::keep(const Span& span) {
  // Spans that began before the trace are not part of it.
  if (!recording() || span.begin < start_) return;
  try {
    spans_.push_back(span);
  } catch (const std::bad_alloc&) {
    recording_ = false;
  }
  if (spans_.size() >= kMaxSpans) recording_ = false;
}

TraceSpan::TraceSpan(StepTrace* trace, const char* name)
    : trace_(trace && trace->recording() ? trace : nullptr), name_(name) {
  begin_range(name);
  if (trace_) begin_ = StepTrace::Clock::now();
}

TraceSpan::~TraceSpan() {
  end_range();
  if (trace_) trace_->add(name_, begin_, StepTrace::Clock::now());
}

}  // namespace attend
