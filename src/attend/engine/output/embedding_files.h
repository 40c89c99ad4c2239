// What the files of a sentence-transformers model say about the way from hidden states to a vector.
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

// Reads modules.json and what it names; nothing when the directory has none. Throws Error(kUnsupported) for a
// module or a way to pool that attend does not have, Error(kCorruptFile) naming file and field.
std::optional<EmbeddingFiles> read_embedding_files(const std::filesystem::path& directory);

}  // namespace attend
