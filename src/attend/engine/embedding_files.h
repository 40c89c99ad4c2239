// What the files of a sentence-transformers model say about the way from hidden states to a vector.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "attend/engine/embedder.h"
#include "attend/tensor/tensor.h"

namespace attend {

// x = act(W x + b), behind the pooling.
struct EmbeddingDense {
  std::filesystem::path directory;  // of its model.safetensors
  int in_features = 0, out_features = 0;
  bool bias = false;
  bool tanh = false;  // the activation; otherwise there is none
};

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
