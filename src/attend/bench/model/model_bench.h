// `attend bench model` on a CPU: prompt processing and token generation of one request, as llama-bench counts
// them.
#pragma once

#include <functional>
#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine_config.h"

namespace attend::bench {

struct ModelBenchOptions {
  EngineConfig engine;  // its sizes (context, pool, chunk, requests) are set by the bench
  // Of the timed prompts, and of what is generated; 0 and nothing: none of that kind.
  std::vector<int> prompt_tokens = {512};
  std::vector<int> new_tokens = {128};
  std::vector<int> depths = {0};  // tokens of context before the first timed one
  int repetitions = 1;            // of each case
  EngineProgress progress = {};
  // Told of the report so far, each time that a case is there.
  std::function<void(const Report&)> on_case = {};
};

// ppN @ dD: the step of the last N tokens of a prompt of D + N. tgN @ dD: N decode steps behind D tokens (one
// at depth 0). The tokens before are computed once, of the deepest depth; tokens a second are the mean's, as
// llama-bench has them, the time is the median step's.
//
// The bound of tg is reading the weights (of the token embedding one row) and the K/V once per token; the
// bound of pp is its products and sums at the peak of the fastest vector arithmetic. Throws what Engine
// throws, and Error(kInvalidArgument) for numbers below 0 or beyond the model's positions.
Report bench_model(const ModelBenchOptions& options);

}  // namespace attend::bench
