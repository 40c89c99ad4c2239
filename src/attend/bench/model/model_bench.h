// Benchmark `attend bench model` on a CPU: prompt processing and token generation of one request, with
// llama-bench's definitions.
#pragma once

#include <functional>
#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine_config.h"

namespace attend::bench {

struct ModelBenchOptions {
  EngineConfig engine;  // its sizes (context, pool, chunk, requests) are set by the bench
  // Lengths of the timed prompts and generations; 0 or empty: no such case.
  std::vector<int> prompt_tokens = {512};
  std::vector<int> new_tokens = {128};
  std::vector<int> depths = {0};  // context lengths before the first timed token
  int repetitions = 1;            // per case
  EngineProgress progress = {};
  // Called with the report so far after each case.
  std::function<void(const Report&)> on_case = {};
};

// Cases: ppN @ dD is the step of the last N tokens of a prompt of D + N tokens. tgN @ dD is N decode steps
// after D tokens (1 token at depth 0). The preceding tokens are computed once, for the largest depth. Tokens
// per second are the mean, as in llama-bench; the time is that of the median step.
//
// The bound of tg is reading the weights (one row of the token embedding) and K/V once per token. The bound
// of pp is its multiplications and additions at the peak of the fastest vector arithmetic. Throws the errors
// of Engine, and Error(kInvalidArgument) for numbers below 0 or beyond the model's maximum position.
Report bench_model(const ModelBenchOptions& options);

}  // namespace attend::bench
