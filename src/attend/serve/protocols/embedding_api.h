// EmbeddingApi: what each path does of a server that makes vectors.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "attend/engine/async_embedder.h"
#include "attend/serve/protocols/embedding_job.h"
#include "attend/serve/protocols/service.h"

namespace attend::serve {

// On the I/O thread, except where work is handed to workers.
class EmbeddingApi : public Service {
 public:
  EmbeddingApi(AsyncEmbedder& embedder, ApiOptions options, Executor& executor,
               std::function<HttpMetrics()> http_metrics);
  ~EmbeddingApi() override;

  size_t num_active() const override { return calls_.size(); }
  void abort_all() override;

 private:
  class Call;

  int max_model_len() const override { return embedder_.info().max_input_tokens; }

  void embeddings(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void no_generation(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health_generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void model_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void server_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void metrics(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  // On a worker thread: reads the body, tokenizes, and queues.
  void submit(const std::string& body, const std::shared_ptr<Call>& call);
  void check_queue() const;
  std::vector<std::vector<int32_t>> encode(const std::vector<PromptInput>& inputs) const;

  AsyncEmbedder& embedder_;
  std::mutex queue_mutex_;  // from a look at the queue to what is put there
  std::unordered_set<std::shared_ptr<Call>> calls_;
};

}  // namespace attend::serve
