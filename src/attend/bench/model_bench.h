// `attend bench model` on a CPU: prompt processing and token generation of one request, as llama-bench counts
// them.
#pragma once

#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine_config.h"

namespace attend::bench {

struct ModelBenchOptions {
  EngineConfig engine;  // its sizes (context, pool, chunk, requests) are set by the bench
  int prompt_tokens = 512;
  int new_tokens = 128;
  std::vector<int> depths = {0};  // tokens of context before the first timed one
  EngineProgress progress = {};
};

// ppN @ dD: the step of the last N tokens of a prompt of D + N. tgN @ dD: N decode steps; at depth 0 they
// begin at a prompt of one token, at others where pp ended (so at D + prompt_tokens, a little deeper than
// llama-bench).
//
// The bound of tg is reading the weights (of the token embedding one row) and the K/V once per token; the
// bound of pp is its products and sums at the peak of the fastest vector arithmetic. Throws what Engine
// throws.
Report bench_model(const ModelBenchOptions& options);

}  // namespace attend::bench
