// POST /v1/score and /score, with the fields of vLLM's clients.
#include <optional>
#include <utility>

#include "attend/serve/protocols/pooling/pooling_fields.h"

namespace attend::serve {
namespace {

// Names of the two sides of pairs.
constexpr std::pair<const char*, const char*> kSides[] = {
    {"text_1", "text_2"}, {"queries", "documents"}, {"data_1", "data_2"}};

std::string score_reply(const std::vector<float>& scores, const PoolingReplyHead& head) {
  JsonText json;
  json.begin_object().key("id").text(head.id).key("object").text("list");
  json.key("created").integer(head.created).key("model").text(head.model);
  json.key("data").begin_array();
  for (size_t i = 0; i < scores.size(); ++i) {
    json.begin_object().key("index").integer(static_cast<int64_t>(i)).key("object").text("score");
    json.key("score").number(static_cast<double>(scores[i])).end_object();
  }
  json.end_array();
  add_pooling_usage(json, head.num_tokens);
  return json.end_object().take();
}

}  // namespace

PoolingJob read_score_job(const Json& body, const PoolingModel& model) {
  const Fields fields(body);
  fields.string("model");
  for (const char* const name : {"items", "label_token_ids"})
    if (fields.has(name))
      reject_unsupported(name,
                         "SGLang's scores of label tokens; expected \"text_1\" and \"text_2\", or "
                         "\"queries\" and \"documents\"");
  std::vector<std::string> firsts, seconds;
  std::string first_field, second_field;
  for (const auto& [first, second] : kSides) {
    if (!fields.has(first) && !fields.has(second)) continue;
    if (!second_field.empty()) reject(second, second, ": mutually exclusive with \"", second_field, "\"");
    for (const char* const side : {first, second})
      if (!fields.has(side)) reject(side, side, ": missing; expected a string or a list of strings");
    firsts = read_texts(*fields.find(first), first);
    seconds = read_texts(*fields.find(second), second);
    first_field = first;
    second_field = second;
    if (firsts.size() != 1 && firsts.size() != seconds.size())
      reject(second, first, " has ", firsts.size(), " texts and ", second, " has ", seconds.size(),
             ": expected 1 and n, or n and n");
  }
  if (second_field.empty())
    reject("text_1", "text_1: missing; expected \"text_1\" and \"text_2\", or \"queries\" and \"documents\"");
  const bool activate = read_activation(fields);
  const PairOptions options{
      .max_tokens = read_truncation(fields, model.info),
      .max_second_tokens = static_cast<int>(fields.integer("max_tokens_per_doc", 0, INT32_MAX).value_or(0)),
      .instruction = {}};
  read_unused(fields);
  text_tokenizer(model, second_field);
  ScoreInputs inputs = encode_request_pairs(model, fields, firsts, seconds, options);
  PoolingJob job{.inputs = std::exchange(inputs.ids, {}),
                 .token_types = std::exchange(inputs.token_types, {}),
                 .inputs_field = second_field,
                 .firsts_field = first_field,
                 .num_firsts = model.info.classifier ? size_t{0} : firsts.size(),
                 .hint = kTruncationHint,
                 .reply = {},
                 .ignored = fields.unknown()};
  job.reply = [inputs = std::move(inputs), activate, &info = model.info](
                  const std::vector<std::vector<float>>& vectors, const PoolingReplyHead& head) {
    return score_reply(pair_scores(info, inputs, vectors, activate), head);
  };
  return job;
}

}  // namespace attend::serve
