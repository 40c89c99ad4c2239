// Resolves an engine's config for a model on this machine, before weights are read.
#pragma once

#include <memory>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/engine/resolve/resolve_executor.h"

namespace attend {

struct ResolvedEngine {
  EngineInfo info;                        // infos of executors are completed later (Executors::complete)
  std::vector<ExecutorConfig> executors;  // one for each of info.executors
  int num_pages = 0;                      // per KV pool, including the padding page
};

// Chooses limits, resolves the executors, and sets their sizes. `checkpoint`: contains the model's weights;
// null: dummy weights. Allocates nothing. Throws Error(kInvalidArgument) or Error(kUnsupported) for an
// unsupported option, and the errors of set_sizes().
ResolvedEngine resolve_engine(const EngineConfig& config, const ModelSpec& model,
                              std::shared_ptr<const Checkpoint> checkpoint);

// Chooses the number of pages, which is the same for all KV pools, from the total memory of the executors,
// and all sizes that depend on it. `info`: without executors. Throws Error(kOutOfMemory) with needed and free
// bytes and the flag to lower if the sizes do not fit into memory together, and Error(kInvalidArgument) for a
// CUDA graph size that no step reaches.
ResolvedEngine set_sizes(const EngineConfig& config, EngineInfo info,
                         std::vector<ResolvedExecutor> executors);

}  // namespace attend
