// EmbeddingApi: endpoints of a server that returns embeddings, scores or labels.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "attend/engine/async_embedder.h"
#include "attend/serve/protocols/monitoring/health_probe.h"
#include "attend/serve/protocols/pooling/pooling_endpoint.h"
#include "attend/serve/protocols/service.h"

namespace attend::serve {

// Used on the I/O thread, except for work that is passed to worker threads.
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

  void answer(const PoolingEndpoint& endpoint, const HttpRequest& request,
              const std::shared_ptr<Exchange>& exchange);
  void tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void no_generation(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health_generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void model_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void server_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void metrics(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  // Reads the body, tokenizes, and queues the inputs. Runs on a worker thread.
  void submit(const PoolingEndpoint& endpoint, const std::string& id, const std::string& body,
              const std::shared_ptr<Call>& call);
  void check_queue() const;
  ProbedEngine probed_engine();
  void check_lengths(const PoolingJob& job) const;

  AsyncEmbedder& embedder_;
  std::mutex queue_mutex_;  // held from the check of the queue until the inputs are queued
  std::unordered_set<std::shared_ptr<Call>> calls_;
  std::string id_prefix_;  // unique per process
  uint64_t num_ids_ = 0;
  HealthProbe health_;
};

}  // namespace attend::serve
