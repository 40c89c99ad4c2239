#include "attend/serve/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/version.h"
#include "attend/serve/http/memory_reserve.h"
#include "attend/serve/protocols/replies.h"
#include "attend/serve/web_files.h"

namespace attend::serve {
namespace {

// Takes as long for every wrong key of the right length.
bool same_key(std::string_view given, std::string_view key) {
  if (given.size() != key.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < key.size(); ++i)
    difference = static_cast<unsigned char>(difference | (given[i] ^ key[i]));
  return difference == 0;
}

// What a worker makes.
struct MadeAnswer : Recipient {
  explicit MadeAnswer(std::shared_ptr<Exchange> to) : exchange(std::move(to)) {}
  void receive() noexcept override {
    answer_or_drop(*exchange, [&] {
      if (error) return answer_error(*exchange, *error);
      exchange->reply(200, kJson, std::move(text));
    });
  }

  std::shared_ptr<Exchange> exchange;
  std::string text;
  std::optional<ApiError> error;
};

}  // namespace

void HealthAnswer::receive() noexcept {
  answer_or_drop(*exchange, [&] {
    if (well) return exchange->reply(200, "text/plain", "");
    answer_error(*exchange, {503, complaint, {}, "unhealthy"});
  });
}

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void answer_error(Exchange& exchange, const ApiError& error) {
  Headers headers;
  if (error.status == 503) headers.emplace_back("Retry-After", "1");
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  exchange.reply(error.status, kJson, error_reply(error), std::move(headers));
}

ApiError to_api_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (!known) return {500, error.what(), {}, {}};
  switch (known->code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return {400, error.what(), {}, std::string(to_string(known->code()))};
    case ErrorCode::kOutOfMemory:
      return {503, error.what(), {}, std::string(to_string(known->code()))};
    default:
      return {500, error.what(), {}, std::string(to_string(known->code()))};
  }
}

ApiError current_error() noexcept {
  try {
    try {
      throw;
    } catch (const ApiError& error) {
      return error;
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    } catch (const std::exception& error) {
      return to_api_error(error);
    }
  } catch (...) {
    return out_of_memory();
  }
}

Service::Service(ApiOptions options, Executor& executor, std::function<HttpMetrics()> http_metrics)
    : options_(std::move(options)),
      executor_(executor),
      outbox_(executor),
      http_metrics_(std::move(http_metrics)) {
  const auto answer = [](int status, std::string_view type, const std::string& body) {
    return [=](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
      exchange->reply(status, type, body);
    };
  };
  const auto health = [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    this->health(request, exchange);
  };
  add_route({"GET", "/v1/models", Access::kKey,
             [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
               models(request, exchange);
             }});
  add_route({"GET", "/health", Access::kOpen, health});
  add_route({"GET", "/ping", Access::kOpen, health});
  add_route(
      {"GET", "/version", Access::kOpen, answer(200, kJson, json_text({{"version", attend::version()}}))});
  add_route({"GET", "/openapi.json", Access::kOpen, answer(200, kJson, std::string(kOpenApi))});
}

Service::~Service() = default;

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  MemoryReserve::restore();
  if (const auto error = error_of([&] { dispatch(request, exchange); })) answer_error(*exchange, *error);
}

void Service::dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (request.method == "OPTIONS") return exchange->reply(204, "", "");
  const bool model_by_id = request.path.starts_with("/v1/models/");
  const std::string_view path = model_by_id ? "/v1/models" : std::string_view(request.path);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : routes_) {
    if (route.path != path) continue;
    if (route.method == method) {
      check_key(route.access, request);
      return route.answer(request, exchange);
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (!allowed.empty()) {
    const ApiError error{405, request.method + " " + request.path + ": expected " + allowed, {}, {}};
    return exchange->reply(405, kJson, error_reply(error), {{"Allow", allowed}});
  }
  throw ApiError{404, request.path + ": no such path", {}, "not_found"};
}

void Service::check_key(Access access, const HttpRequest& request) const {
  const std::string& key =
      access == Access::kAdmin && !options_.admin_api_key.empty() ? options_.admin_api_key : options_.api_key;
  if (access == Access::kOpen || key.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  if (!given.starts_with(kBearer) || !same_key(given.substr(kBearer.size()), key))
    throw ApiError{
        401, "expected the header Authorization: Bearer with the server's API key", {}, "invalid_api_key"};
}

void Service::check_model(const std::string& name) const {
  const auto& served = options_.served_names;
  if (name.empty() || name == options_.model_path ||
      std::find(served.begin(), served.end(), name) != served.end())
    return;
  throw ApiError{
      404, fmt::format("model {}: not served here; expected {}", excerpt(name), fmt::join(served, ", ")),
      "model", "model_not_found"};
}

void Service::log_ignored(const std::vector<std::string>& fields) const {
  constexpr size_t kMaxNames = 100;  // clients make them up
  if (fields.empty()) return;
  const std::lock_guard lock(ignored_mutex_);
  for (const std::string& field : fields)
    if (ignored_.size() < kMaxNames && ignored_.insert(field.substr(0, 60)).second)
      log_info("requests have a field that has no effect here: ", json_text(field.substr(0, 60)));
}

void Service::answer_on_worker(const std::shared_ptr<Exchange>& exchange, std::function<std::string()> make) {
  const auto answer = std::make_shared<MadeAnswer>(exchange);
  executor_.work([this, answer, make = std::move(make)] {
    answer->error = error_of([&] { answer->text = make(); });
    outbox_.add_now(*answer);
  });
}

Json Service::model_card(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "attend"},
          {"root", options_.model_path.string()},
          {"parent", nullptr},
          {"max_model_len", max_model_len()}};
}

void Service::models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kOne = "/v1/models/";
  if (request.path.starts_with(kOne)) {
    const std::string name = request.path.substr(kOne.size());
    check_model(name.empty() ? "/" : name);
    return answer_on_worker(exchange, [this, name] { return json_text(model_card(name)); });
  }
  answer_on_worker(exchange, [this] {
    Json cards = Json::array();
    for (const std::string& name : options_.served_names) cards.push_back(model_card(name));
    return json_text({{"object", "list"}, {"data", cards}});
  });
}

void Service::check_not_draining() const {
  if (draining_) throw ApiError{503, "the server is shutting down", {}, "shutting_down"};
}

void Service::health(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  check_not_draining();
  exchange->reply(200, "text/plain", "");
}

}  // namespace attend::serve
