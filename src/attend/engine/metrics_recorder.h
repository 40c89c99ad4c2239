// MetricsRecorder: metrics that one thread writes and others read without a lock.
#pragma once

#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <span>

#include "attend/engine/engine.h"
#include "attend/engine/engine_metrics.h"

namespace attend {

// Atomic number that one thread writes and others read.
template <class T>
class SingleWriterNumber {
 public:
  void set(T value) { value_.store(value, std::memory_order_relaxed); }
  void add(T value) { set(get() + value); }
  T get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_ = {};
};

class HistogramRecorder {
 public:
  // `upper_bounds` has static storage.
  explicit HistogramRecorder(std::span<const double> upper_bounds);
  void add(double seconds, int64_t times = 1);
  Histogram read() const;

 private:
  std::span<const double> upper_bounds_;
  std::unique_ptr<SingleWriterNumber<int64_t>[]> buckets_;
  SingleWriterNumber<double> sum_;
};

class MetricsRecorder {
 public:
  MetricsRecorder();

  // Called on the thread that steps the engine.
  void on_output(const RequestOutput& output, Clock::time_point previous_output);
  void on_end(FinishReason reason) { num_finished_[static_cast<size_t>(reason)].add(1); }
  void on_step(const Engine& engine);
  // Records an embedder's call when all its inputs have their vectors.
  void on_embedded(Clock::time_point submitted, Clock::time_point started, Clock::time_point ended,
                   int64_t num_tokens);

  // Thread-safe. read() does not change values that the recorder does not have.
  int num_waiting() const { return num_waiting_.get(); }
  void read(EngineMetrics& metrics) const;

 private:
  void add_prompt(const Request& request);
  void measure_throughput(int64_t num_generated, bool was_running);

  HistogramRecorder queue_time_, time_to_first_token_, end_to_end_, inter_token_, prefill_time_, decode_time_,
      prompt_length_, generation_length_, step_tokens_;
  SingleWriterNumber<int> page_size_;
  SingleWriterNumber<double> throughput_;
  // Start of the interval that is being measured; used on the engine's thread.
  Clock::time_point interval_start_;
  int64_t interval_generated_ = 0, num_computed_ = 0;
  SingleWriterNumber<int> num_running_, num_waiting_;
  SingleWriterNumber<int64_t> num_used_tokens_, num_total_tokens_, num_cached_tokens_, num_locked_tokens_,
      num_evictable_tokens_;
  SingleWriterNumber<int64_t> num_steps_, num_failed_steps_, num_prompt_tokens_, num_cached_prompt_tokens_,
      num_generated_tokens_, num_preemptions_, num_evicted_tokens_, num_recoveries_, num_draft_steps_,
      num_drafted_tokens_, num_accepted_tokens_;
  SingleWriterNumber<int64_t> num_host_cached_prompt_tokens_, num_disk_cached_prompt_tokens_;
  // Members of CacheTierStats, in the order of kTierMembers.
  static constexpr int64_t CacheTierStats::*kTierMembers[] = {
      &CacheTierStats::num_host_pages,        &CacheTierStats::num_host_cached_pages,
      &CacheTierStats::num_host_pinned_pages, &CacheTierStats::num_host_free_pages,
      &CacheTierStats::num_demoted_pages,     &CacheTierStats::num_host_hit_pages,
      &CacheTierStats::num_disk_hit_pages,    &CacheTierStats::num_dropped_pages,
      &CacheTierStats::num_disk_bytes,        &CacheTierStats::max_disk_bytes,
      &CacheTierStats::num_disk_failures,     &CacheTierStats::num_rejected_files};
  std::array<SingleWriterNumber<int64_t>, std::size(kTierMembers)> tiers_;
  std::array<SingleWriterNumber<int64_t>, kNumFinishReasons> num_finished_;
};

}  // namespace attend
