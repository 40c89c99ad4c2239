// Service: routes, API keys, model list and health checks of every server, independent of its model.
#pragma once

#include <ctime>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "attend/engine/engine_config.h"
#include "attend/serve/http/drain.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/http/ready_queue.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/errors.h"
#include "attend/serve/protocols/monitoring/metrics_text.h"
#include "attend/serve/protocols/responses/response_store.h"

namespace attend::serve {

struct ApiOptions {
  std::filesystem::path model_path;
  std::vector<std::string> served_names;  // the first is used in replies; never empty
  std::string api_key;                    // empty: no key required
  std::string admin_api_key;              // for endpoints that change the server; empty: api_key
  int max_queued_requests = 0;            // 0: no limit
  MetricNames metric_names = MetricNames::kSglang;
  bool skip_model_name_validation = false;    // requests may name any model
  bool incremental_streaming_output = false;  // events of /generate contain new output only
  bool enable_lora = false;                   // adapters may be loaded and unloaded
  bool log_requests = false;
  size_t max_request_items = kMaxRequestItems;  // list elements of one field of a request
  ResponseStoreLimits stored_responses = {};
};

// Used on the I/O thread, except for work that is passed to worker threads.
class Service : public Drainable {
 public:
  Service(ApiOptions options, Executor& executor, std::function<HttpMetrics()> http_metrics);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // Rejects health checks and requests that compute with 503 from now on.
  void drain() override { draining_ = true; }

 protected:
  // Key that a path requires.
  enum class Needs { kNothing, kKey, kAdminKey };
  // `path`: a * matches a segment that is not empty.
  struct Route {
    std::string_view method, path;
    Needs needs;
    std::function<void(const HttpRequest&, const std::shared_ptr<Exchange>&)> answer;
  };
  // Row of a derived class's table.
  template <class Api>
  struct RouteTo {
    std::string_view method, path;
    void (Api::*answer)(const HttpRequest&, const std::shared_ptr<Exchange>&);
    Needs needs;
  };
  void add_route(Route route) { routes_.push_back(std::move(route)); }
  template <class Api>
  void add_routes(Api* api, std::span<const RouteTo<Api>> table) {
    for (const RouteTo<Api>& row : table)
      add_route(
          {row.method, row.path, row.needs,
           [api, answer = row.answer](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
             (api->*answer)(request, exchange);
           }});
  }
  // Maximum context length of the listed models.
  virtual int max_model_len() const = 0;

  // LoRA adapters, which requests select by their name.
  virtual std::vector<AdapterPath> adapters() const { return {}; }
  // Returns the adapter that a model's name selects: its own name, or "model:adapter" as in SGLang. Empty:
  // none.
  std::string adapter_of(const std::string& name) const;

  void check_model(const std::string& name) const;
  // Reason for which the engine computes no further steps; empty: there is none.
  virtual std::string engine_failure() const { return {}; }
  // Throws ApiError 503 while the server shuts down, and after engine_failure().
  void check_available() const;
  // Logs each unknown or ignored field once. May be called from any thread.
  void log_ignored(const std::vector<std::string>& fields) const;
  // Runs `make` on a worker thread and sends the JSON that it returns from the I/O thread. The I/O thread
  // itself creates no Json, since destroying one allocates memory.
  void answer_on_worker(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                        std::function<std::string()> make);

  // The same for a reply that is ready after `start` has returned: it passes `send` to another thread. If
  // `start` throws, the error is sent.
  void answer_later(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                    std::function<void(std::function<void(int status, std::string json)> send)> start);

  ApiOptions options_;
  Executor& executor_;
  ReadyQueue ready_queue_;
  std::function<HttpMetrics()> http_metrics_;
  bool draining_ = false;

 private:
  void dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  // Returns a path whose API has the error format of the request: Anthropic's clients send a header, and
  // share /v1/models with others.
  std::string_view error_path(const HttpRequest& request) const;
  // Returns the known path that a client with an unknown one probably means, or an empty text.
  std::string similar_path(std::string_view path) const;
  void check_key(Needs needs, const HttpRequest& request) const;
  void models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  Json model_card(const std::string& name) const;
  Json adapter_card(const AdapterPath& adapter) const;

  std::vector<Route> routes_;
  mutable std::mutex ignored_mutex_;
  mutable std::set<std::string> ignored_;
  std::time_t started_ = std::time(nullptr);
};

}  // namespace attend::serve
