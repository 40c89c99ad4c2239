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

// vLLM's bounds of lengths and of steps: tokens.
constexpr double kLengthBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
constexpr double kStepBounds[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

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
      inter_token_(kInterTokenBounds),
      prefill_time_(kEndToEndBounds),
      decode_time_(kEndToEndBounds),
      prompt_length_(kLengthBounds),
      generation_length_(kLengthBounds),
      step_tokens_(kStepBounds) {}

void MetricsRecorder::add_prompt(const Request& request) {
  num_prompt_tokens_.add(request.num_prompt);
  num_cached_prompt_tokens_.add(request.num_cached_tokens);
  num_host_cached_prompt_tokens_.add(request.num_host_cached_tokens);
  num_disk_cached_prompt_tokens_.add(request.num_disk_cached_tokens);
}

void MetricsRecorder::on_output(const RequestOutput& output, Clock::time_point previous_output) {
  const Request& request = output.request;
  const auto num_new = static_cast<int>(output.token_ids.size());
  if (num_new > 0 && request.num_output() == num_new) {
    add_prompt(request);
    queue_time_.add(seconds_between(request.times.submitted, request.times.admitted));
    time_to_first_token_.add(seconds_between(request.times.submitted, output.time));
    prefill_time_.add(seconds_between(request.times.admitted, output.time));
  } else if (!output.vector.empty() || (num_new == 0 && output.finish_reason == FinishReason::kLength)) {
    // A pooled input, or a prompt without new tokens.
    add_prompt(request);
    queue_time_.add(seconds_between(request.times.submitted, request.times.admitted));
  } else if (num_new > 0) {
    inter_token_.add(seconds_between(previous_output, output.time) / num_new, num_new);
  }
  if (output.finish_reason == FinishReason::kStop || output.finish_reason == FinishReason::kLength) {
    end_to_end_.add(seconds_between(request.times.submitted, output.time));
    prompt_length_.add(request.num_prompt);
    generation_length_.add(request.num_output());
    if (request.num_output() > 0) decode_time_.add(seconds_between(request.times.first_token, output.time));
  }
}

void MetricsRecorder::measure_throughput(int64_t num_generated, bool was_running) {
  constexpr double kIntervalSeconds = 1.0;
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(interval_start_, now);
  if (was_running && seconds < kIntervalSeconds) return;
  // The time before the first step of an idle engine is not part of an interval.
  if (was_running) throughput_.set(static_cast<double>(num_generated - interval_generated_) / seconds);
  interval_start_ = now;
  interval_generated_ = num_generated;
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
  const bool was_running = num_running_.get() > 0;
  num_running_.set(engine.num_running());
  num_waiting_.set(engine.num_waiting());
  num_used_tokens_.set(engine.num_used_slots());
  num_total_tokens_.set(engine.info().pool_slots);
  num_cached_tokens_.set(engine.num_cached_slots());
  num_evictable_tokens_.set(engine.num_evictable_slots());
  num_locked_tokens_.set(engine.num_cached_slots() - engine.num_evictable_slots());
  page_size_.set(engine.info().page_size);
  measure_throughput(stats.num_generated_tokens, was_running);
  const int64_t num_computed = stats.num_prefill_tokens + stats.num_decode_tokens;
  if (num_computed > num_computed_) step_tokens_.add(static_cast<double>(num_computed - num_computed_));
  num_computed_ = num_computed;
  num_steps_.set(stats.num_steps);
  num_failed_steps_.set(stats.num_failed_steps);
  num_generated_tokens_.set(stats.num_generated_tokens);
  num_preemptions_.set(engine.num_preemptions());
  num_evicted_tokens_.set(stats.num_evicted_tokens);
  num_recoveries_.set(stats.num_recoveries);
  const CacheTierStats tiers = engine.cache_tiers();
  for (size_t i = 0; i < tiers_.size(); ++i) tiers_[i].set(tiers.*kTierMembers[i]);
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
  metrics.page_size = page_size_.get();
  metrics.generation_throughput = metrics.num_running > 0 ? throughput_.get() : 0.0;
  metrics.num_steps = num_steps_.get();
  metrics.num_failed_steps = num_failed_steps_.get();
  metrics.num_prompt_tokens = num_prompt_tokens_.get();
  metrics.num_cached_prompt_tokens = num_cached_prompt_tokens_.get();
  metrics.num_host_cached_prompt_tokens = num_host_cached_prompt_tokens_.get();
  metrics.num_disk_cached_prompt_tokens = num_disk_cached_prompt_tokens_.get();
  for (size_t i = 0; i < tiers_.size(); ++i) metrics.tiers.*kTierMembers[i] = tiers_[i].get();
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
  metrics.prefill_time = prefill_time_.read();
  metrics.decode_time = decode_time_.read();
  metrics.prompt_length = prompt_length_.read();
  metrics.generation_length = generation_length_.read();
  metrics.step_tokens = step_tokens_.read();
}

}  // namespace attend
