// EngineMetrics: counters, gauges and histograms of an engine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "attend/engine/output/request_output.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/kv/cache_tier_stats.h"

#pragma GCC visibility push(default)
namespace attend {

// Histogram of seconds with Prometheus buckets: bucket i counts values at most upper_bounds[i] and above the
// previous bound; the last bucket has no upper bound.
struct Histogram {
  std::span<const double> upper_bounds;  // ascending; static storage
  std::vector<int64_t> buckets;          // [upper_bounds.size() + 1]; not cumulative
  double sum = 0.0;

  int64_t count() const;
  // Returns the upper bound of the bucket that contains the quantile `share` (0.5: the median); infinity for
  // the last bucket, 0 without values.
  double quantile(double share) const;
};

// Requests are counted by completions: one with n completions counts n times. A snapshot during a step may
// combine values from before and after it; each value is exact.
struct EngineMetrics {
  int num_running = 0;           // requests with pages
  int num_waiting = 0;           // requests without pages
  int64_t num_used_tokens = 0;   // used tokens of the KV pool
  int64_t num_total_tokens = 0;  // size of the KV pool
  // Tokens in full pages of the prefix cache: all, those that running requests use, and those that can be
  // evicted.
  int64_t num_cached_tokens = 0;
  int64_t num_locked_tokens = 0;
  int64_t num_evictable_tokens = 0;
  int page_size = 0;  // tokens; 0 without a KV pool
  bool paused = false;
  // Generated tokens per second, over about a second; 0 if no request runs.
  double generation_throughput = 0.0;

  // Counters since the start.
  int64_t num_steps = 0;
  int64_t num_failed_steps = 0;
  int64_t num_requests = 0;                                  // submitted
  std::array<int64_t, kNumFinishReasons> num_finished = {};  // indexed by FinishReason; kNone is 0
  int64_t num_prompt_tokens = 0;                             // of requests with a first token
  int64_t num_cached_prompt_tokens = 0;                      // subset: computed by other requests
  // Subsets of num_cached_prompt_tokens that were copied from host memory and from the disk.
  int64_t num_host_cached_prompt_tokens = 0, num_disk_cached_prompt_tokens = 0;
  int64_t num_generated_tokens = 0;
  int64_t num_preemptions = 0;
  int64_t num_evicted_tokens = 0;  // tokens of evicted pages of the prefix cache
  int64_t num_recoveries = 0;      // Scheduler::num_recoveries

  CacheTierStats tiers;  // of the prefix cache below the pool; zeros without them
  DraftCounts drafts;    // zeros without speculation

  // Returns the share of prompt tokens that other requests had computed; 0 before the first prompt.
  double cache_hit_rate() const;

  // Seconds since a request was submitted.
  Histogram queue_time;  // until the request was admitted
  Histogram time_to_first_token;
  Histogram end_to_end;    // until the request finished; aborted ones do not count
  Histogram prefill_time;  // from admission to the first token
  Histogram decode_time;   // of finished requests, from the first token to the last
  // Tokens of finished requests: of the prompt, and generated ones.
  Histogram prompt_length, generation_length;
  Histogram step_tokens;  // tokens that a step computes
  // Seconds between two outputs of a request, divided by the tokens of the later one and counted once per
  // token.
  Histogram inter_token;
};

}  // namespace attend
#pragma GCC visibility pop
