// Service: what every server answers, whatever its model: which path goes where, keys, models, health.
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

#include "attend/serve/http/drain.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/http/ready_queue.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/errors.h"
#include "attend/serve/protocols/metrics_text.h"

namespace attend::serve {

struct ApiOptions {
  std::filesystem::path model_path;
  std::vector<std::string> served_names;  // the first is what answers say; never empty
  std::string api_key;                    // empty: none is asked for
  std::string admin_api_key;              // of what changes the server; empty: api_key
  int max_queued_requests = 0;            // 0: any number
  MetricNames metric_names = MetricNames::kSglang;
  bool log_requests = false;
};

// On the I/O thread, except where work is handed to workers.
class Service : public Drainable {
 public:
  Service(ApiOptions options, Executor& executor, std::function<HttpMetrics()> http_metrics);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // From now on health is 503, and so is what would compute.
  void drain() override { draining_ = true; }

 protected:
  // Key that a path needs.
  enum class Needs { kNothing, kKey, kAdminKey };
  struct Route {
    std::string_view method, path;
    Needs needs;
    std::function<void(const HttpRequest&, const std::shared_ptr<Exchange>&)> answer;
  };
  // A row of a derived class's table.
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
  // Of the models that are listed.
  virtual int max_model_len() const = 0;

  void check_model(const std::string& name) const;
  // Throws 503 for what would compute while the server shuts down.
  void check_not_draining() const;
  // Says once of each what has no effect here. On any thread.
  void log_ignored(const std::vector<std::string>& fields) const;
  // On a worker thread, with its answer, which is JSON, back on the I/O thread. Where a Json is made and
  // destroyed, which takes memory, the I/O thread makes none.
  void answer_on_worker(const std::shared_ptr<Exchange>& exchange, std::function<std::string()> make);

  ApiOptions options_;
  Executor& executor_;
  ReadyQueue ready_queue_;
  std::function<HttpMetrics()> http_metrics_;
  bool draining_ = false;

 private:
  void dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void check_key(Needs needs, const HttpRequest& request) const;
  void models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  Json model_card(const std::string& name) const;

  std::vector<Route> routes_;
  mutable std::mutex ignored_mutex_;
  mutable std::set<std::string> ignored_;
  std::time_t started_ = std::time(nullptr);
};

// Of /health_generate, when its request has ended.
struct HealthResponse : ReadyHandler {
  HealthResponse(std::shared_ptr<Exchange> exchange, const char* unhealthy_message)
      : ReadyHandler(std::move(exchange)), complaint(unhealthy_message) {}
  void receive() override;

  const char* complaint;
  bool healthy = false;
};

std::string json_text(const Json& json);

}  // namespace attend::serve
