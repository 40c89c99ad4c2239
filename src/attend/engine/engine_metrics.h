// EngineMetrics: what an engine has done so far and does now, in numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "attend/engine/output/request_output.h"
#include "attend/engine/speculation/speculative_options.h"

#pragma GCC visibility push(default)
namespace attend {

// Seconds, counted by ranges, as Prometheus has histograms: bucket i counts what is at most upper_bounds[i]
// and above the bound before; the last bucket, which has no bound, the rest.
struct Histogram {
  std::span<const double> upper_bounds;  // rising; lives as long as the program
  std::vector<int64_t> buckets;          // [upper_bounds.size() + 1]; not cumulative
  double sum = 0.0;

  int64_t count() const;
  // The upper bound of the bucket in which a share of all stands (0.5: the median); infinity in the last, 0
  // when nothing was counted.
  double quantile(double share) const;
};

// Requests are counted by their completions: one that asks for n counts n times. Read while the engine runs:
// each figure is exact, all of them may be a step apart.
struct EngineMetrics {
  int num_running = 0;           // requests that have pages
  int num_waiting = 0;           // requests that have none
  int64_t num_used_tokens = 0;   // of the KV pool
  int64_t num_total_tokens = 0;  // that the KV pool holds
  // Of the KV pool, whole pages: what the prefix cache holds, of that what running requests use, and what is
  // evicted when others need the room.
  int64_t num_cached_tokens = 0;
  int64_t num_locked_tokens = 0;
  int64_t num_evictable_tokens = 0;
  int page_size = 0;  // tokens; 0 without a KV pool
  bool paused = false;
  // Generated tokens per second, over about a second; 0 if no request runs.
  double generation_throughput = 0.0;

  // Since the start.
  int64_t num_steps = 0;
  int64_t num_failed_steps = 0;
  int64_t num_requests = 0;                                  // submitted
  std::array<int64_t, kNumFinishReasons> num_finished = {};  // by FinishReason; that of kNone is 0
  int64_t num_prompt_tokens = 0;                             // of requests that got their first token
  int64_t num_cached_prompt_tokens = 0;                      // of those, what others had computed
  int64_t num_generated_tokens = 0;
  int64_t num_preemptions = 0;
  int64_t num_evicted_tokens = 0;  // whose cached K/V made room for others'
  int64_t num_recoveries = 0;      // the books of pages were wrong, and were mended: see Scheduler

  DraftCounts drafts;  // nothing without speculation

  // The share of prompts that others had computed; 0 before the first.
  double cache_hit_rate() const;

  // Of requests, seconds from when they were submitted.
  Histogram queue_time;  // until they had pages for the first time
  Histogram time_to_first_token;
  Histogram end_to_end;    // until they finished, aborted ones excepted
  Histogram prefill_time;  // from when it had pages to its first token
  Histogram decode_time;   // of finished requests, from the first token to the last
  // Tokens of finished requests: of the prompt, and generated ones.
  Histogram prompt_length, generation_length;
  Histogram step_tokens;  // tokens that a step computes
  // Seconds between two outputs of a request, once for each token of the later.
  Histogram inter_token;
};

}  // namespace attend
#pragma GCC visibility pop
