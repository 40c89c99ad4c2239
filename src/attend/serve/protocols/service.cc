#include "attend/serve/protocols/service.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "attend/base/log.h"
#include "attend/base/version.h"
#include "attend/serve/protocols/anthropic/errors.h"
#include "attend/serve/web/web_files.h"

namespace attend::serve {
namespace {

constexpr std::string_view kOneModel = "/v1/models/";

// Compares in constant time for keys of equal length.
bool same_key(std::string_view given, std::string_view key) {
  if (given.size() != key.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < key.size(); ++i)
    difference = static_cast<unsigned char>(difference | (given[i] ^ key[i]));
  return difference == 0;
}

// Returns the token of "Bearer TOKEN" (RFC 6750, 9110): the scheme is not case-sensitive.
std::optional<std::string_view> bearer_token(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() < kBearer.size()) return std::nullopt;
  for (size_t i = 0; i < kBearer.size(); ++i)
    if ((authorization[i] | 0x20) != (kBearer[i] | 0x20)) return std::nullopt;
  const size_t token = authorization.find_first_not_of(' ', kBearer.size());
  return authorization.substr(std::min(token, authorization.size()));
}

bool matches(std::string_view pattern, std::string_view path) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, star))) return false;
  path.remove_prefix(star);
  const size_t end = std::min(path.find('/'), path.size());
  return end > 0 && path.substr(end) == pattern.substr(star + 1);
}

// Response that a worker has prepared.
struct PreparedResponse : ReadyHandler {
  PreparedResponse(std::shared_ptr<Exchange> exchange, const HttpRequest& request, std::string_view format)
      : ReadyHandler(std::move(exchange)), error_path(format), request_id(request.request_id) {}
  void receive() override {
    if (error) return answer_error(exchange(), error_path, to_api_error(error), request_id);
    exchange().reply(status, kJsonType, std::move(text));
  }

  std::string error_path, request_id;
  int status = 200;
  std::string text;
  std::exception_ptr error;
  std::atomic<bool> is_gone = false;  // the client has disconnected
};

}  // namespace

Service::Service(ApiOptions options, Executor& executor, std::function<HttpMetrics()> http_metrics)
    : options_(std::move(options)),
      executor_(executor),
      ready_queue_(executor),
      http_metrics_(std::move(http_metrics)) {
  const auto answer = [](int status, std::string_view type, const std::string& body) {
    return [=](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
      exchange->reply(status, type, body);
    };
  };
  static constexpr RouteTo<Service> kRoutes[] = {{"GET", "/v1/models", &Service::models, Needs::kKey},
                                                 {"GET", "/health", &Service::health, Needs::kNothing},
                                                 {"GET", "/ping", &Service::health, Needs::kNothing}};
  add_routes<Service>(this, kRoutes);
  add_route({"GET", "/version", Needs::kNothing,
             answer(200, kJsonType, json_text({{"version", attend::version()}}))});
  add_route({"GET", "/openapi.json", Needs::kNothing, answer(200, kJsonType, std::string(kOpenApi))});
}

Service::~Service() = default;

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (const auto error = catch_error([&] { dispatch(request, exchange); }))
    answer_error(*exchange, error_path(request), to_api_error(error), request.request_id);
}

std::string_view Service::error_path(const HttpRequest& request) const {
  const auto is_known = [&] {
    return std::ranges::any_of(routes_,
                               [&](const Route& route) { return matches(route.path, request.path); });
  };
  const bool is_shared = request.path == "/v1/models" || request.path.starts_with(kOneModel);
  if (request.has_anthropic_version && (is_shared || !is_known())) return kMessagesPath;
  return request.path;
}

void Service::dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (request.method == "OPTIONS") return exchange->reply(204, "", "");
  const bool model_by_id = request.path.starts_with(kOneModel);
  const std::string_view path = model_by_id ? "/v1/models" : std::string_view(request.path);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  const bool is_exact = std::ranges::any_of(routes_, [&](const Route& route) { return route.path == path; });
  for (const Route& route : routes_) {
    if (is_exact ? route.path != path : !matches(route.path, path)) continue;
    if (route.method == method) {
      check_key(route.needs, request);
      return route.answer(request, exchange);
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (!allowed.empty()) {
    const ApiError error{405, request.method + " " + request.path + ": expected " + allowed, {}, {}};
    return answer_error(*exchange, error_path(request), error, request.request_id, {{"Allow", allowed}});
  }
  const std::string hint = similar_path(request.path);
  throw ApiError{
      404, request.path + ": unknown path" + (hint.empty() ? "" : "; expected " + hint), {}, "not_found"};
}

// Clients mostly add or omit "/v1", or join two slashes.
std::string Service::similar_path(std::string_view path) const {
  std::string single;
  for (const char c : path.substr(0, 200))
    if (c != '/' || !single.ends_with('/')) single += c;
  if (single.size() > 1 && single.ends_with('/')) single.pop_back();
  std::vector<std::string> candidates = {single, "/v1" + single};
  for (const std::string_view prefix : {"/v1/v1", "/api/v1", "/openai/v1"})
    if (single.starts_with(prefix)) candidates.push_back("/v1" + single.substr(prefix.size()));
  if (single.starts_with("/v1/")) candidates.push_back(single.substr(3));
  for (const std::string& candidate : candidates)
    for (const Route& route : routes_)
      if (matches(route.path, candidate)) return candidate;
  return {};
}

void Service::check_key(Needs needs, const HttpRequest& request) const {
  const std::string& key = needs == Needs::kAdminKey && !options_.admin_api_key.empty()
                               ? options_.admin_api_key
                               : options_.api_key;
  if (needs == Needs::kNothing || key.empty()) {
    // A key that is sent is proof enough, since browsers do not add one themselves.
    if (request.is_foreign)
      throw ApiError{403,
                     "Origin: requests of web pages of other origins are not allowed; see --cors-origins",
                     {},
                     "foreign_origin"};
    return;
  }
  const auto given = bearer_token(request.authorization);
  const bool is_bearer_right = given && same_key(*given, key);
  if (!is_bearer_right && !same_key(request.api_key, key))
    throw ApiError{
        401,
        "expected the header \"Authorization: Bearer KEY\" or \"x-api-key: KEY\" with the server's "
        "API key",
        {},
        "invalid_api_key"};
}

std::string Service::adapter_of(const std::string& name) const {
  const auto& served = options_.served_names;
  if (std::ranges::find(served, name) != served.end()) return {};
  for (const AdapterPath& adapter : adapters())
    if (name == adapter.name || std::ranges::any_of(served, [&](const std::string& model) {
          return name == model + ":" + adapter.name;
        }))
      return adapter.name;
  return {};
}

void Service::check_model(const std::string& name) const {
  const auto& served = options_.served_names;
  if (name.empty() || name == options_.model_path || options_.skip_model_name_validation ||
      std::find(served.begin(), served.end(), name) != served.end() || !adapter_of(name).empty())
    return;
  // Without --served-model-name, the name is a path of this machine.
  const bool is_path = served.front() == options_.model_path;
  throw ApiError{
      404,
      fmt::format("model {}: not served here; expected {}", excerpt(name),
                  is_path ? "a name that GET /v1/models lists" : fmt::format("{}", fmt::join(served, ", "))),
      "model", "model_not_found"};
}

void Service::log_ignored(const std::vector<std::string>& fields) const {
  constexpr size_t kMaxNames = 100;  // bound, since clients may send any names
  if (fields.empty()) return;
  const std::lock_guard lock(ignored_mutex_);
  for (const std::string& field : fields)
    if (ignored_.size() < kMaxNames && ignored_.insert(field.substr(0, 60)).second)
      log_info("ignoring a request field without effect: ", json_text(field.substr(0, 60)));
}

void Service::answer_on_worker(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                               std::function<std::string()> make) {
  const auto answer = std::make_shared<PreparedResponse>(exchange, request, error_path(request));
  exchange->on_disconnect = [weak = std::weak_ptr(answer)](int) {
    if (const auto gone = weak.lock()) gone->is_gone = true;
  };
  executor_.work([this, answer, make = std::move(make)] {
    if (answer->is_gone) return;
    answer->error = catch_error([&] { answer->text = make(); });
    ready_queue_.add_now(*answer);
  });
}

void Service::answer_later(
    const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
    std::function<void(std::function<void(int status, std::string json)> send)> start) {
  const auto answer = std::make_shared<PreparedResponse>(exchange, request, error_path(request));
  executor_.work([this, answer, start = std::move(start)] {
    const auto send = [this, answer](int status, std::string json) {
      answer->status = status;
      answer->text = std::move(json);
      ready_queue_.add_now(*answer);
    };
    // Without an error, another thread may be sending the answer already.
    if (auto error = catch_error([&] { start(send); })) {
      answer->error = std::move(error);
      ready_queue_.add_now(*answer);
    }
  });
}

// The fields of OpenAI's and of Anthropic's API.
Json Service::model_card(const std::string& name) const {
  return {{"id", name},           {"object", "model"},
          {"type", "model"},      {"display_name", name},
          {"created", started_},  {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started_))},
          {"owned_by", "attend"}, {"root", options_.model_path.string()},
          {"parent", nullptr},    {"max_model_len", max_model_len()}};
}

Json Service::adapter_card(const AdapterPath& adapter) const {
  Json card = model_card(adapter.name);
  card["root"] = adapter.path.string();
  card["parent"] = options_.served_names.front();
  return card;
}

void Service::models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (request.path.starts_with(kOneModel)) {
    const std::string name = request.path.substr(kOneModel.size());
    check_model(name.empty() ? "/" : name);
    return answer_on_worker(request, exchange, [this, name] {
      for (const AdapterPath& adapter : adapters())
        if (adapter.name == adapter_of(name)) return json_text(adapter_card(adapter));
      return json_text(model_card(name));
    });
  }
  answer_on_worker(request, exchange, [this] {
    Json cards = Json::array();
    for (const std::string& name : options_.served_names) cards.push_back(model_card(name));
    for (const AdapterPath& adapter : adapters()) cards.push_back(adapter_card(adapter));
    return json_text({{"object", "list"},
                      {"data", cards},
                      {"has_more", false},
                      {"first_id", cards.front()["id"]},
                      {"last_id", cards.back()["id"]}});
  });
}

void Service::check_available() const {
  if (draining_) throw ApiError{503, "the server is shutting down", {}, "shutting_down"};
  if (const std::string failure = engine_failure(); !failure.empty())
    throw ApiError{
        503, "the engine has failed, and the server must be restarted: " + failure, {}, "engine_failed"};
}

void Service::health(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  check_available();
  exchange->reply(200, "text/plain", "");
}

}  // namespace attend::serve
