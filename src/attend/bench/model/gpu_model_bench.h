// Benchmark `attend bench model` on a GPU: decode steps of batches, and a long prompt.
#pragma once

#include <functional>
#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine_config.h"

namespace attend::bench {

struct GpuModelBenchOptions {
  EngineConfig engine;  // its sizes (context, pool, chunk, requests) are set by the bench
  std::vector<int> batch_sizes = {1, 8, 32, 128, 256};
  int depth = 1000;  // context length before the decode steps
  // LoRA adapters of random values, which the requests of further cases use in turn; 0: no such cases.
  int num_adapters = 0, adapter_rank = 16;
  EngineProgress progress = {};
  // Called with the report so far after each case.
  std::function<void(const Report&)> on_case = {};
};

// For each batch size: requests with about `depth` tokens of context that decode greedily. The K/V of those
// tokens are the current contents of the pool: zeros, or values of earlier cases.
//   decode      tokens/s and step time, including all host work; compared with the time of reading all bytes
//               that a step must read (every weight except unused rows of the embedding, and K/V) at the
//               fastest rate measured in the same run
//   host work   without overlap scheduling: host time of a step before the replay and after its tokens have
//               arrived; median and 99th percentile
// For one prompt of up to 8192 tokens in one step:
//   prefill     tokens/s; compared with the time of its GEMMs (experts as if they were dense) and attention
// With adapters each of these is repeated, and compared with its time without adapters.
//
// Graphs are recorded for the batch sizes unless the engine's config names others or disables them. Throws
// Error(kInvalidArgument) for a batch size or depth below 1 and a model with too short a context, and the
// errors of Engine.
Report bench_model_on_gpu(const GpuModelBenchOptions& options);

}  // namespace attend::bench
