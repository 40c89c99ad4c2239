#include "attend/engine/metrics_recorder.h"

#include <algorithm>

namespace attend {
namespace {

// Upper bounds in seconds: SGLang's, with finer ones below its first.
constexpr double kFirstTokenBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2,
                                        0.4,   0.6,    0.8,   1,    2,     4,    6,   8,
                                        10,    20,     40,    60,   80,    100,  200, 400};
constexpr double kInterTokenBounds[] = {0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020,
                                        0.025,  0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200, 0.400,
                                        0.600,  0.800, 1,     2,     4,     6,     8};
constexpr double kEndToEndBounds[] = {0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1,   2,    4,    6,   8,
                                      10,   20,    40,   60,  80,  100, 200, 400, 600, 1200, 1800, 2400};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

HistogramRecorder::HistogramRecorder(std::span<const double> upper_bounds)
    : upper_bounds_(upper_bounds),
      buckets_(std::make_unique<SingleWriterNumber<int64_t>[]>(upper_bounds.size() + 1)) {}

void HistogramRecorder::add(double seconds, int64_t times) {
  const auto bucket = std::lower_bound(upper_bounds_.begin(), upper_bounds_.end(), seconds);
  buckets_[static_cast<size_t>(bucket - upper_bounds_.begin())].add(times);
  sum_.add(seconds * static_cast<double>(times));
}

Histogram HistogramRecorder::read() const {
  Histogram histogram{.upper_bounds = upper_bounds_, .buckets = {}, .sum = sum_.get()};
  for (size_t i = 0; i <= upper_bounds_.size(); ++i) histogram.buckets.push_back(buckets_[i].get());
  return histogram;
}

MetricsRecorder::MetricsRecorder()
    : queue_time_(kFirstTokenBounds),
      time_to_first_token_(kFirstTokenBounds),
      end_to_end_(kEndToEndBounds),
      inter_token_(kInterTokenBounds) {}

void MetricsRecorder::on_output(const RequestOutput& output, Clock::time_point previous_output) {
  const Request& request = output.request;
  const auto num_new = static_cast<int>(output.token_ids.size());
  if (num_new > 0 && request.num_output() == num_new) {
    num_prompt_tokens_.add(request.num_prompt);
    num_cached_prompt_tokens_.add(request.num_cached_tokens);
    queue_time_.add(seconds_between(request.times.submitted, request.times.admitted));
    time_to_first_token_.add(seconds_between(request.times.submitted, output.time));
  } else if (!output.vector.empty()) {
    num_prompt_tokens_.add(request.num_prompt);
    queue_time_.add(seconds_between(request.times.submitted, request.times.admitted));
  } else if (num_new > 0) {
    inter_token_.add(seconds_between(previous_output, output.time) / num_new, num_new);
  }
  if (output.finish_reason == FinishReason::kStop || output.finish_reason == FinishReason::kLength)
    end_to_end_.add(seconds_between(request.times.submitted, output.time));
}

void MetricsRecorder::on_embedded(Clock::time_point submitted, Clock::time_point started,
                                  Clock::time_point ended, int64_t num_tokens) {
  on_end(FinishReason::kStop);
  num_prompt_tokens_.add(num_tokens);
  queue_time_.add(seconds_between(submitted, started));
  end_to_end_.add(seconds_between(submitted, ended));
}

void MetricsRecorder::on_step(const Engine& engine) {
  const EngineStats& stats = engine.stats();
  num_running_.set(engine.num_running());
  num_waiting_.set(engine.num_waiting());
  num_used_tokens_.set(engine.num_used_slots());
  num_total_tokens_.set(engine.info().pool_slots);
  num_cached_tokens_.set(engine.num_cached_slots());
  num_evictable_tokens_.set(engine.num_evictable_slots());
  num_locked_tokens_.set(engine.num_cached_slots() - engine.num_evictable_slots());
  num_steps_.set(stats.num_steps);
  num_failed_steps_.set(stats.num_failed_steps);
  num_generated_tokens_.set(stats.num_generated_tokens);
  num_preemptions_.set(engine.num_preemptions());
  num_evicted_tokens_.set(stats.num_evicted_tokens);
  num_recoveries_.set(stats.num_recoveries);
  num_draft_steps_.set(stats.drafts.num_steps);
  num_drafted_tokens_.set(stats.drafts.num_drafted);
  num_accepted_tokens_.set(stats.drafts.num_accepted);
}

void MetricsRecorder::read(EngineMetrics& metrics) const {
  metrics.num_running = num_running_.get();
  metrics.num_waiting = num_waiting_.get();
  metrics.num_used_tokens = num_used_tokens_.get();
  metrics.num_total_tokens = num_total_tokens_.get();
  metrics.num_cached_tokens = num_cached_tokens_.get();
  metrics.num_locked_tokens = num_locked_tokens_.get();
  metrics.num_evictable_tokens = num_evictable_tokens_.get();
  metrics.num_steps = num_steps_.get();
  metrics.num_failed_steps = num_failed_steps_.get();
  metrics.num_prompt_tokens = num_prompt_tokens_.get();
  metrics.num_cached_prompt_tokens = num_cached_prompt_tokens_.get();
  metrics.num_generated_tokens = num_generated_tokens_.get();
  metrics.num_preemptions = num_preemptions_.get();
  metrics.num_evicted_tokens = num_evicted_tokens_.get();
  metrics.num_recoveries = num_recoveries_.get();
  metrics.drafts = {.num_steps = num_draft_steps_.get(),
                    .num_drafted = num_drafted_tokens_.get(),
                    .num_accepted = num_accepted_tokens_.get()};
  for (size_t i = 0; i < num_finished_.size(); ++i) metrics.num_finished[i] = num_finished_[i].get();
  metrics.queue_time = queue_time_.read();
  metrics.time_to_first_token = time_to_first_token_.read();
  metrics.end_to_end = end_to_end_.read();
  metrics.inter_token = inter_token_.read();
}

}  // namespace attend
