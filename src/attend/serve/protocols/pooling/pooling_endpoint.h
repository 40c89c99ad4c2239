// PoolingEndpoint: record of a path that returns vectors, scores or labels: the function that reads its
// requests. A new API is a file that defines a record, and a row of kPoolingEndpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/engine/embedder.h"
#include "attend/serve/json/fields.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

// Values of a reply that do not depend on the request's API.
struct PoolingReplyHead {
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  size_t num_tokens = 0;
};

struct PoolingModel {
  const EmbedderInfo& info;
  const Tokenizer* tokenizer = nullptr;  // null: the model has none
};

// Request to the embedder: tokens of its inputs, and the function that makes its reply from their vectors.
struct PoolingJob {
  std::vector<std::vector<int32_t>> inputs, token_types;  // PoolingRequest
  std::string inputs_field;                               // name of the field with the inputs, for errors
  // The first inputs may be of another field (first texts of pairs, with an embedding model).
  std::string firsts_field = {};
  size_t num_firsts = 0;
  std::string hint = {};  // end of the error for an input that is too long
  std::function<std::string(std::vector<std::vector<float>> vectors, const PoolingReplyHead& head)> reply;
  std::vector<std::string> ignored;  // unknown fields
};

struct PoolingEndpoint {
  std::string_view path, id_prefix;
  // Validates and tokenizes. Throws ApiError that names the field, or Error of the tokenizer. Does not check
  // the length of the inputs.
  PoolingJob (*read)(const Json& body, const PoolingModel& model);
};

PoolingJob read_embedding_job(const Json& body, const PoolingModel& model);  // OpenAI's
PoolingJob read_rerank_job(const Json& body, const PoolingModel& model);     // Jina's, Cohere's and vLLM's
PoolingJob read_score_job(const Json& body, const PoolingModel& model);      // vLLM's
PoolingJob read_classify_job(const Json& body, const PoolingModel& model);   // vLLM's

inline constexpr PoolingEndpoint kPoolingEndpoints[] = {
    {"/v1/embeddings", "embd-", read_embedding_job},  {"/v1/rerank", "rerank-", read_rerank_job},
    {"/rerank", "rerank-", read_rerank_job},          {"/v2/rerank", "rerank-", read_rerank_job},
    {"/v1/score", "score-", read_score_job},          {"/score", "score-", read_score_job},
    {"/v1/classify", "classify-", read_classify_job}, {"/classify", "classify-", read_classify_job},
};

}  // namespace attend::serve
