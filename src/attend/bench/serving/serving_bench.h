// `attend bench serving --offline`: an engine under a trace, without HTTP: how long requests wait for their
// first token and between two, how many tokens come in a second, and what the KV pool does meanwhile.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "attend/bench/serving/trace.h"
#include "attend/engine/engine.h"

namespace attend::bench {

struct ServingOptions {
  EngineConfig engine = {};
  TraceOptions trace = {};
  std::filesystem::path trace_file = {};  // instead of a trace made at random, as far as it says
  int max_concurrency = 0;                // requests that are not answered yet at most; 0: any number
  EngineProgress progress = {};
  std::function<void(int num_done, int num_requests)> served = {};
};

// A request of the trace. Seconds from the start.
struct ServedRequest {
  double arrival = 0.0;  // with a limit of concurrency: when it was sent
  double first_token = 0.0;
  double finished = 0.0;
  int num_prompt = 0;
  int num_cached = 0;  // of the prompt
  int num_output = 0;
};

// What the engine holds at a moment.
struct PoolSample {
  double seconds = 0.0;
  int num_running = 0;
  int num_waiting = 0;
  int num_used_tokens = 0;    // of requests that run
  int num_cached_tokens = 0;  // of the prefix cache
};

struct ServingResult {
  EngineInfo info;
  std::string trace;  // in words
  double seconds = 0.0;
  std::vector<ServedRequest> requests;
  std::vector<double> inter_token_seconds;
  std::vector<PoolSample> samples;  // one for each step
  int64_t num_preemptions = 0;
  int64_t num_evicted_tokens = 0;
  DraftCounts drafts;
  int64_t num_steps = 0, num_prompt_steps = 0;        // all, and those that had a prompt's tokens in them
  double prompt_seconds = 0.0, decode_seconds = 0.0;  // of those, and of the others
};

// Throws what Engine throws, before weights are read for a trace that does not fit the model or the pool.
ServingResult bench_serving(const ServingOptions& options);

// Of values that rise, the smallest which a share of them does not pass; 0 of nothing.
double percentile(std::span<const double> sorted, double share);

void print(const ServingResult& result);

// {"bench": "serving", "model", "machine", "date", "version", "trace", "seconds", "requests", "requests/s",
// "input tokens/s", "output tokens/s", "hit_rate", "preemptions", "evicted_tokens", "steps", "prompt_steps",
// "prompt_seconds", "decode_seconds", "pool_tokens", "peak_used_tokens", "latencies": {"ttft" | "itl" |
// "tpot" | "e2e": {"mean", "p50", "p90", "p95", "p99", "max", "percentiles": [101]}}, "samples": {"seconds",
// "running", "waiting", "used_tokens", "cached_tokens": [at most 1,000 each]}}, with speculation
// "accept_length" and "accept_rate" too. Latencies are milliseconds. Throws Error(kInvalidArgument) for a
// file that cannot be written.
void write_json(const ServingResult& result, const std::filesystem::path& path);

}  // namespace attend::bench
