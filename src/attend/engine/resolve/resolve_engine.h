// Resolves an engine's config for a model on this machine: everything that is decided before weights are
// read.
#pragma once

#include <memory>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/engine/resolve/resolve_executor.h"

namespace attend {

struct ResolvedEngine {
  EngineInfo info;                        // infos of executors are completed later (Executors::complete)
  std::vector<ExecutorConfig> executors;  // one for each of info.executors
  int num_pages = 0;                      // of each KV pool, the padding page included
};

// Chooses limits, resolves the executors, and sets their sizes. `checkpoint`: of the model's weights; null:
// dummy weights. Allocates nothing. Throws Error(kInvalidArgument) or Error(kUnsupported) for an option that
// can not be served, and as set_sizes() does.
ResolvedEngine resolve_engine(const EngineConfig& config, const ModelSpec& model,
                              std::shared_ptr<const Checkpoint> checkpoint);

// Chooses the number of pages, which all KV pools have in common, by the memory that the executors need
// together, and all sizes that follow. `info`: without executors. Throws Error(kOutOfMemory) with needed and
// free bytes for sizes that do not fit into memory together, naming the flag that chose them, and
// Error(kInvalidArgument) for a CUDA graph size that no step reaches.
ResolvedEngine set_sizes(const EngineConfig& config, EngineInfo info,
                         std::vector<ResolvedExecutor> executors);

}  // namespace attend
