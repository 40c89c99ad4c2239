// EmbeddingJob: what a client asks vectors of, read from the JSON of /v1/embeddings and checked; and the
// answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

struct EmbeddingJob {
  std::string model;  // empty: not named
  std::vector<PromptInput> inputs;
  std::optional<int> dimensions;  // fewer than the model's; none: all
  bool base64 = false;
  std::vector<std::string> ignored;  // fields that nobody knows
};

// Throws ApiError naming the field. `dimensions`: of the model's vectors.
EmbeddingJob read_embedding(const Json& body, int dimensions);

// The answer: a vector of each input, as numbers or as the base64 of their float32, little-endian.
std::string embedding_reply(const std::vector<std::vector<float>>& vectors, bool base64, size_t num_tokens,
                            const std::string& model);

}  // namespace attend::serve
