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
  const bool truncates = read.truncate.has_value();
  const auto max_tokens =
      static_cast<size_t>(read.truncate.value_or(-1) < 0 ? info.max_input_tokens : *read.truncate);
  for (PromptInput& input : read.inputs) {
    if (auto* ids = std::get_if<std::vector<int32_t>>(&input)) {
      if (truncates && ids->size() > max_tokens) ids->resize(max_tokens);
      job.inputs.push_back(std::move(*ids));
      continue;
    }
    const Tokenizer& tokenizer = text_tokenizer(model, "input");
    const auto& text = std::get<std::string>(input);
    job.inputs.push_back(truncates ? tokenizer.encode_truncated(text, max_tokens, TruncationSide::kRight,
                                                                read.add_special_tokens)
                                   : tokenizer.encode(text, read.add_special_tokens));
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
