// Service: what every server answers, whatever its model: which path goes where, keys, models, health.
#pragma once

#include <ctime>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attend/serve/http/exchange.h"
#include "attend/serve/http/outbox.h"
#include "attend/serve/protocols/fields.h"
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
class Service {
 public:
  Service(ApiOptions options, Executor& executor, std::function<HttpMetrics()> http_metrics);
  virtual ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // From now on health is 503, and so is what would compute.
  void drain() { draining_ = true; }
  // Requests that are being computed.
  virtual size_t num_in_hand() const = 0;
  virtual void abort_all() = 0;

 protected:
  enum class Access { kOpen, kKey, kAdmin };
  struct Route {
    std::string_view method, path;
    Access access;
    std::function<void(const HttpRequest&, const std::shared_ptr<Exchange>&)> answer;
  };
  void add_route(Route route) { routes_.push_back(std::move(route)); }
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
  Outbox outbox_;
  std::function<HttpMetrics()> http_metrics_;
  bool draining_ = false;

 private:
  void dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void check_key(Access access, const HttpRequest& request) const;
  void models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  Json model_card(const std::string& name) const;

  std::vector<Route> routes_;
  mutable std::mutex ignored_mutex_;
  mutable std::set<std::string> ignored_;
  std::time_t started_ = std::time(nullptr);
};

inline constexpr std::string_view kJson = "application/json";

// Of /health_generate, when its request has ended.
struct HealthAnswer : Recipient {
  HealthAnswer(std::shared_ptr<Exchange> to, const char* when_unwell)
      : exchange(std::move(to)), complaint(when_unwell) {}
  void receive() noexcept override;

  std::shared_ptr<Exchange> exchange;
  const char* complaint;
  bool well = false;
};

std::string json_text(const Json& json);
void answer_error(Exchange& exchange, const ApiError& error);
// A client that there is no memory to answer is dropped.
template <class Answer>
void answer_or_drop(Exchange& exchange, Answer&& answer) noexcept {
  try {
    answer();
  } catch (...) {
    exchange.drop();
  }
}
// The status and the words of any exception.
ApiError to_api_error(const std::exception& error);
// In a catch clause: of the exception that was caught, an ApiError or any other.
ApiError current_error() noexcept;

// Runs `task` and gives what went wrong.
template <class Task>
std::optional<ApiError> error_of(Task&& task) noexcept {
  try {
    task();
    return std::nullopt;
  } catch (...) {
    return current_error();
  }
}

}  // namespace attend::serve
