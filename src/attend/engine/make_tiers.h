// Tiers of the prefix cache below an engine's pool.
#pragma once

#include <memory>

#include "attend/checkpoint/checkpoint.h"
#include "attend/engine/engine.h"
#include "attend/kv/tier/cache_tiers.h"

namespace attend {

// Throws Error(kInvalidArgument) for an invalid option, and Error(kUnsupported) for an engine that cannot
// have tiers: on GPUs, with a draft head, or with speculation over recurrent states. `info`: with the
// choices of resolve_engine() that do not depend on sizes.
void check_hierarchical_cache(const EngineConfig& config, const ModelSpec& model, const EngineInfo& info);

// Makes the tiers, and sets info.num_host_cache_tokens. `bytes`: data of the target's executors. `model`:
// their stream. `checkpoint`: contains the weights, which are read if there is a disk tier; otherwise unused.
// Throws Error(kOutOfMemory) with needed and free bytes for a host tier that does not fit, and the errors of
// FileStore.
std::unique_ptr<CacheTiers> make_tiers(const EngineConfig& config, EngineInfo& info,
                                       std::vector<PageData*> groups, const CacheBytes& bytes,
                                       const Stream& model, const Checkpoint* checkpoint);

}  // namespace attend
