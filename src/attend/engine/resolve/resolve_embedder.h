// Resolves an embedder's config to the config of its engine.
#pragma once

#include "attend/engine/embedder.h"
#include "attend/engine/engine.h"

namespace attend {

struct ResolvedEmbedder {
  EngineConfig engine;
  EmbedderInfo info;  // without the engine's choices: see add_engine_info
};

// Reads config.json and the sentence-transformers files. Throws Error for an unsupported model, option or
// file.
ResolvedEmbedder resolve_embedder(const EmbedderConfig& config);

// Adds backends, step limits and the size of the weights.
void add_engine_info(const EngineInfo& engine, EmbedderInfo& info);

}  // namespace attend
