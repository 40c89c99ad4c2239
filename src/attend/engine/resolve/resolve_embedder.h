// Derives the engine's config from an embedder's config.
#pragma once

#include "attend/engine/embedder.h"
#include "attend/engine/engine.h"

namespace attend {

struct ResolvedEmbedder {
  EngineConfig engine;
  EmbedderInfo info;  // without what the engine chooses: see add_engine_info
};

// Reads config.json and the sentence-transformers files. Throws Error for a model, option or file that can
// not be served.
ResolvedEmbedder resolve_embedder(const EmbedderConfig& config);

// Adds backends, limits of a step and the size of the weights.
void add_engine_info(const EngineInfo& engine, EmbedderInfo& info);

}  // namespace attend
