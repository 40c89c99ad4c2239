// POST /v1/rerank, /rerank and /v2/rerank, with the fields of Jina's, Cohere's and vLLM's clients.
#include <algorithm>
#include <numeric>
#include <utility>

#include "attend/serve/protocols/pooling/pooling_fields.h"

namespace attend::serve {
namespace {

struct RerankReply {
  ScoreInputs inputs;
  std::vector<std::string> documents;
  size_t top_n = 0;
  bool return_documents = true, activate = true;
};

std::string rerank_reply(const RerankReply& reply, const std::vector<float>& scores,
                         const PoolingReplyHead& head) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), reply.top_n));
  JsonText json;
  json.begin_object().key("id").text(head.id).key("object").text("list").key("model").text(head.model);
  json.key("results").begin_array();
  for (const size_t index : order) {
    json.begin_object().key("index").integer(static_cast<int64_t>(index));
    json.key("relevance_score").number(static_cast<double>(scores[index]));
    if (reply.return_documents)
      json.key("document").begin_object().key("text").text(reply.documents[index]).end_object();
    json.end_object();
  }
  json.end_array();
  add_pooling_usage(json, head.num_tokens);
  // Cohere's clients read the number of tokens here.
  json.key("meta").begin_object().key("tokens").begin_object();
  json.key("input_tokens").integer(static_cast<int64_t>(head.num_tokens)).end_object().end_object();
  return json.end_object().take();
}

}  // namespace

PoolingJob read_rerank_job(const Json& body, const PoolingModel& model) {
  const Fields fields(body);
  fields.string("model");
  const Json* const query = fields.find("query");
  if (!query) reject("query", "query: missing; expected a string");
  const Json* const documents = fields.find("documents");
  if (!documents || !documents->is_array())
    reject("documents", "documents", documents ? " " + excerpt(*documents) : ": missing",
           "; expected a list of strings, or of objects with a string \"text\"");
  RerankReply reply;
  const std::vector<std::string> queries = {read_text(*query, "query")};
  reply.documents = read_texts(*documents, "documents");
  // vLLM's default is 0, for all.
  const int64_t top_n = fields.integer("top_n", 0, INT32_MAX).value_or(0);
  reply.top_n = top_n == 0 ? reply.documents.size() : static_cast<size_t>(top_n);
  reply.return_documents = fields.boolean("return_documents").value_or(true);
  reply.activate = read_activation(fields);
  for (const std::string& name : fields.strings("rank_fields"))
    if (name != "text")
      reject_unsupported("rank_fields", excerpt(name), "; documents are ranked by \"text\"");
  const PairOptions options{
      .max_tokens = read_truncation(fields, model.info),
      .max_second_tokens = static_cast<int>(fields.integer("max_tokens_per_doc", 0, INT32_MAX).value_or(0)),
      .instruction = {}};
  read_unused(fields);
  text_tokenizer(model, "documents");
  reply.inputs = encode_request_pairs(model, fields, queries, reply.documents, options);
  PoolingJob job{.inputs = std::exchange(reply.inputs.ids, {}),
                 .token_types = std::exchange(reply.inputs.token_types, {}),
                 .inputs_field = "documents",
                 .firsts_field = "query",
                 .num_firsts = model.info.classifier ? size_t{0} : queries.size(),
                 .hint = kTruncationHint,
                 .reply = {},
                 .ignored = fields.unknown()};
  job.reply = [reply = std::move(reply), &info = model.info](const std::vector<std::vector<float>>& vectors,
                                                             const PoolingReplyHead& head) {
    return rerank_reply(reply, pair_scores(info, reply.inputs, vectors, reply.activate), head);
  };
  return job;
}

}  // namespace attend::serve
