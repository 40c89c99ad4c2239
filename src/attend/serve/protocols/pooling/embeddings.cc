// POST /v1/embeddings.
#include <utility>

#include "attend/serve/protocols/pooling/embedding_job.h"
#include "attend/serve/protocols/pooling/pooling_fields.h"

namespace attend::serve {

PoolingJob read_embedding_job(const Json& body, const PoolingModel& model) {
  const EmbedderInfo& info = model.info;
  if (info.classifier)
    throw ApiError{400,
                   describe(info) + ", not embeddings; use POST /v1/rerank, /v1/score or /v1/classify",
                   {},
                   "unsupported"};
  EmbeddingJob read = read_embedding(body, info.dimensions);
  PoolingJob job{.inputs = {},
                 .token_types = {},
                 .inputs_field = "input",
                 .reply = {},
                 .ignored = std::move(read.ignored)};
  for (PromptInput& input : read.inputs) {
    if (auto* ids = std::get_if<std::vector<int32_t>>(&input))
      job.inputs.push_back(std::move(*ids));
    else
      job.inputs.push_back(text_tokenizer(model, "input").encode(std::get<std::string>(input)));
  }
  job.reply = [base64 = read.base64, dimensions = read.dimensions, normalize = info.normalize](
                  std::vector<std::vector<float>> vectors, const PoolingReplyHead& head) {
    if (dimensions)
      for (std::vector<float>& vector : vectors)
        vector = truncate_and_normalize(std::move(vector), *dimensions, normalize);
    return embedding_reply(vectors, base64, head.num_tokens, head.model);
  };
  return job;
}

}  // namespace attend::serve
