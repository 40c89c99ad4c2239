// What an engine's config means for a model on this machine: all that can be known before weights are read.
#pragma once

#include "attend/engine/engine.h"
#include "attend/exec/executor_config.h"

namespace attend {

struct ResolvedEngine {
  EngineInfo info;  // without weight_bytes, graph_bytes and graph_sizes, which come later
  ExecutorConfig executor;
  int num_pages = 0;  // of the KV pool, the padding page included
};

// Chooses backends, limits and the sizes of pools. Allocates nothing. Throws Error(kInvalidArgument) or
// Error(kUnsupported) for an option that can not be served, Error(kOutOfMemory) with needed and free bytes
// for sizes that do not fit into memory together, by the flag that chose them.
ResolvedEngine resolve_engine(const EngineConfig& config, const ModelSpec& model);

}  // namespace attend
