// Benchmark `attend bench serving`: runs an engine on a trace, without HTTP. It measures time to
// first token, inter-token latency, throughput and the use of the KV pool.
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
  std::filesystem::path trace_file = {};  // replaces the parts of the random trace that it contains
  int max_concurrency = 0;                // maximum number of unfinished requests; 0: no limit
  std::filesystem::path profile = {};     // file for a trace of the steps (StepTrace); empty: none
  EngineProgress progress = {};
  std::function<void(int num_done, int num_requests)> served = {};
};

// A request of the trace. Times are seconds from the start.
struct ServedRequest {
  double arrival = 0.0;  // with a limit of concurrency: time of submission
  double first_token = 0.0;
  double finished = 0.0;
  int num_prompt = 0;
  int num_cached = 0;  // of the prompt
  int num_output = 0;
};

// State of the engine at one time.
struct PoolSample {
  double seconds = 0.0;
  int num_running = 0;
  int num_waiting = 0;
  int num_used_tokens = 0;    // of running requests
  int num_cached_tokens = 0;  // of the prefix cache
};

struct ServingResult {
  EngineInfo info;
  std::string trace;  // description of the trace
  double seconds = 0.0;
  std::vector<ServedRequest> requests;
  std::vector<double> inter_token_seconds;
  std::vector<PoolSample> samples;  // one per step
  int64_t num_preemptions = 0;
  int64_t num_evicted_tokens = 0;
  DraftCounts drafts;
  int64_t num_steps = 0, num_prompt_steps = 0;        // all steps, and those with prompt tokens
  double prompt_seconds = 0.0, decode_seconds = 0.0;  // time of steps with prompt tokens, and of the other
                                                      // steps
};

// Throws the errors of Engine; for a trace that does not fit the model or the pool, before weights are
// loaded.
ServingResult bench_serving(const ServingOptions& options);

// Returns the smallest of the sorted values that the fraction `share` of them does not exceed; 0 if empty.
double percentile(std::span<const double> sorted, double share);

void print(const ServingResult& result);

// Writes {"bench": "serving", "model", "machine", "date", "version", "trace", "seconds", "requests",
// "requests/s", "input tokens/s", "output tokens/s", "hit_rate", "preemptions", "evicted_tokens", "steps",
// "prompt_steps", "prompt_seconds", "decode_seconds", "pool_tokens", "peak_used_tokens", "latencies": {"ttft"
// | "itl" | "tpot" | "e2e": {"mean", "p50", "p90", "p95", "p99", "max", "percentiles": [101]}}, "samples":
// {"seconds", "running", "waiting", "used_tokens", "cached_tokens": [at most 1,000 each]}}; with speculation
// also "accept_length" and "accept_rate". Latencies are in milliseconds. Throws Error(kInvalidArgument) if
// the file cannot be written.
void write_json(const ServingResult& result, const std::filesystem::path& path);

}  // namespace attend::bench
