// EmbeddingJob: a request for embeddings, read from the JSON of /v1/embeddings and validated, and its reply.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

struct EmbeddingJob {
  std::string model;  // empty: not given
  std::vector<PromptInput> inputs;
  std::optional<int> dimensions;  // number of leading elements to return; none: all
  bool base64 = false;
  bool add_special_tokens = true;  // to inputs that are texts
  // Only the first tokens of each input are used; -1: those that fit; none: a longer input is rejected.
  std::optional<int> truncate;
  std::vector<std::string> ignored;  // unknown fields
};

// Throws ApiError that names the field. `dimensions`: size of the model's vectors.
EmbeddingJob read_embedding(const Json& body, int dimensions);

// Reads a text, token ids, or a list of 1 to 2,048 of either. Null: absent. Throws ApiError for "input".
std::vector<PromptInput> read_inputs(const Json* input);

// Returns the reply: one vector per input, as JSON numbers or as base64 of little-endian float32.
std::string embedding_reply(const std::vector<std::vector<float>>& vectors, bool base64, size_t num_tokens,
                            const std::string& model);

}  // namespace attend::serve
