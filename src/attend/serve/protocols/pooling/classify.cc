// POST /v1/classify and /classify, with the fields of vLLM's clients.
#include <algorithm>
#include <utility>

#include "attend/serve/protocols/pooling/embedding_job.h"
#include "attend/serve/protocols/pooling/pooling_fields.h"

namespace attend::serve {
namespace {

std::string classify_reply(const Classifier& classifier, std::vector<std::vector<float>> vectors,
                           bool activates, const PoolingReplyHead& head) {
  JsonText json;
  json.begin_object().key("id").text(head.id).key("object").text("list");
  json.key("created").integer(head.created).key("model").text(head.model);
  json.key("data").begin_array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    const std::vector<float> probs =
        activates ? activate(std::move(vectors[i]), classifier.activation) : std::move(vectors[i]);
    const auto best = static_cast<size_t>(std::ranges::max_element(probs) - probs.begin());
    json.begin_object().key("index").integer(static_cast<int64_t>(i));
    json.key("label").text(classifier.labels[best]).key("probs").begin_array();
    for (const float prob : probs) json.number(static_cast<double>(prob));
    json.end_array().key("num_classes").integer(std::ssize(probs)).end_object();
  }
  json.end_array();
  add_pooling_usage(json, head.num_tokens);
  return json.end_object().take();
}

}  // namespace

PoolingJob read_classify_job(const Json& body, const PoolingModel& model) {
  const EmbedderInfo& info = model.info;
  if (!info.classifier)
    throw ApiError{
        400, describe(info) + "; use POST /v1/embeddings, /v1/score or /v1/rerank", {}, "unsupported"};
  const Fields fields(body);
  fields.string("model");
  if (fields.has("messages")) reject_unsupported("messages", "expected \"input\", a text or a list of texts");
  if (fields.has("labels")) reject_unsupported("labels", "the labels are those of the model");
  const bool activate = read_activation(fields);
  const int max_tokens = read_truncation(fields, info);
  PoolingJob job{.inputs = {},
                 .token_types = {},
                 .inputs_field = "input",
                 .hint = kTruncationHint,
                 .reply = {},
                 .ignored = {}};
  for (PromptInput& input : read_inputs(fields.find("input"))) {
    if (auto* ids = std::get_if<std::vector<int32_t>>(&input)) {
      if (max_tokens > 0) ids->resize(std::min(ids->size(), static_cast<size_t>(max_tokens)));
      job.inputs.push_back(std::move(*ids));
      continue;
    }
    const std::string& text = std::get<std::string>(input);
    const Tokenizer& tokenizer = text_tokenizer(model, "input");
    job.inputs.push_back(max_tokens > 0 ? tokenizer.encode_truncated(text, static_cast<size_t>(max_tokens))
                                        : tokenizer.encode(text));
  }
  read_unused(fields);
  job.ignored = fields.unknown();
  job.reply = [&classifier = *info.classifier, activate](std::vector<std::vector<float>> vectors,
                                                         const PoolingReplyHead& head) {
    return classify_reply(classifier, std::move(vectors), activate, head);
  };
  return job;
}

}  // namespace attend::serve
