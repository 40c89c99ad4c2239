// Files of a sentence-transformers model that describe how hidden states become a vector.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "attend/engine/output/pooling.h"
#include "attend/model/config/classifier_spec.h"

namespace attend {

// Score of a reranker that is a language model: the logit of a token, less that of another one.
struct LogitScore {
  int32_t true_token = 0;
  std::optional<int32_t> false_token = {};
};

struct EmbeddingFiles {
  std::optional<Pooling> pooling = {};
  std::vector<EmbeddingDense> dense = {};
  bool normalize = false;
  std::optional<int> max_tokens = {};
  std::optional<LogitScore> logit_score = {};
  std::optional<ScoreActivation> activation = {};  // of config_sentence_transformers.json
};

// Returns the limit of tokens in tokenizer_config.json. Many files have 10^30 for no limit.
std::optional<int> read_model_max_length(const std::filesystem::path& directory);

// Reads modules.json and the files it refers to; returns nothing if the directory has no modules.json. Throws
// Error(kUnsupported) for a module or pooling mode that attend does not support, and Error(kCorruptFile)
// naming file and field.
std::optional<EmbeddingFiles> read_embedding_files(const std::filesystem::path& directory);

}  // namespace attend
