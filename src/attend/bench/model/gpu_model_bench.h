// `attend bench model` on a GPU: decode steps of batches, and a long prompt.
#pragma once

#include <functional>
#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine_config.h"

namespace attend::bench {

struct GpuModelBenchOptions {
  EngineConfig engine;  // its sizes (context, pool, chunk, requests) are set by the bench
  std::vector<int> batch_sizes = {1, 8, 32, 128, 256};
  int depth = 1000;  // tokens of context before the decode steps
  EngineProgress progress = {};
  // Told of the report so far, each time that a case is there.
  std::function<void(const Report&)> on_case = {};
};

// For each batch size, requests with about `depth` tokens of context that decode greedily. The K/V of those
// tokens are whatever the pool holds: zeros, or what ran before.
//   decode      tokens/s and time of a step, all of the host's work included, beside the time in which
//               the fastest read seen in the same run reads what a step must read: every weight but the
//               embedding's rows, and K/V
//   host work   where steps do not overlap: what one costs the host before the replay and after the tokens
//               are there; median and 99th percentile
// and for one prompt of up to 8192 tokens in one step:
//   prefill     tokens/s, beside the time of its products (those of experts as if they were dense) and its
//               attention alone
//
// Graphs are recorded for the batch sizes unless the engine's config names others or turns them off. Throws
// Error(kInvalidArgument) for a batch size or depth below 1 and a model whose context is too short, and what
// Engine throws.
Report bench_model_on_gpu(const GpuModelBenchOptions& options);

}  // namespace attend::bench
