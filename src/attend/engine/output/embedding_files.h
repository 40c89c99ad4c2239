// Files of a sentence-transformers model that describe how hidden states become a vector.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "attend/engine/output/pooling.h"

namespace attend {

struct EmbeddingFiles {
  std::optional<Pooling> pooling;
  std::vector<EmbeddingDense> dense;
  bool normalize = false;
  std::optional<int> max_tokens;
};

// Reads modules.json and the files it refers to; returns nothing if the directory has no modules.json. Throws
// Error(kUnsupported) for a module or pooling mode that attend does not support, and Error(kCorruptFile)
// naming file and field.
std::optional<EmbeddingFiles> read_embedding_files(const std::filesystem::path& directory);

}  // namespace attend
