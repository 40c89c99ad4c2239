// Api: what each path does. It knows HTTP by HttpRequest and Exchange alone.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "attend/engine/async_engine.h"
#include "attend/model/chat_template/chat_template.h"
#include "attend/serve/exchange.h"
#include "attend/serve/generation.h"
#include "attend/serve/metrics_text.h"

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
class Api {
 public:
  Api(AsyncEngine& engine, std::optional<ChatTemplate> chat, ApiOptions options, Executor& executor,
      std::function<HttpMetrics()> http_metrics);
  ~Api();

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // From now on health is 503, and so is what would generate.
  void drain() { draining_ = true; }
  size_t num_generations() const { return generations_.size(); }
  void abort_all();

 private:
  struct Route {
    std::string_view method, path;
    void (Api::*answer)(const HttpRequest&, const std::shared_ptr<Exchange>&);
    enum class Access { kOpen, kKey, kAdmin } access;
  };
  static const std::vector<Route>& routes();

  void dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void check_key(Route::Access access, const HttpRequest& request) const;
  void check_model(const std::string& name) const;
  void check_queue() const;

  void chat_completions(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void completions(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health_generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void model_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void server_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void flush_cache(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void start_profile(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void stop_profile(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void abort_request(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void metrics(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void version(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void web_page(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void openapi(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  void start_generation(Door door, const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void log_request(const Generation& ended, int status, const std::string& path,
                   const std::string& traceparent) const;
  // On a worker thread: reads the body, applies the template.
  GenerationJob prepare(Door door, const std::string& body) const;
  std::vector<int32_t> apply_template(const GenerationJob& job) const;
  // Says once of each what has no effect here. On any thread.
  void log_ignored(const std::vector<std::string>& fields) const;
  // On a worker thread, with its answer back on the I/O thread.
  void answer_on_worker(const std::shared_ptr<Exchange>& exchange, std::function<Json()> make);
  Json model_card(const std::string& name) const;
  std::string new_id(Door door);

  AsyncEngine& engine_;
  std::optional<ChatTemplate> chat_;
  ApiOptions options_;
  SamplingDefaults defaults_;
  Executor& executor_;
  std::function<HttpMetrics()> http_metrics_;
  Outbox outbox_;
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> generations_;
  std::string id_prefix_;  // of this process, so that ids of restarts differ
  int64_t num_ids_ = 0;
  mutable std::mutex ignored_mutex_;
  mutable std::set<std::string> ignored_;
  std::time_t started_ = std::time(nullptr);
  bool draining_ = false;
};

// The status and the words of any exception.
ApiError to_api_error(const std::exception& error);

}  // namespace attend::serve
