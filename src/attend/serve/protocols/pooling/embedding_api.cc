#include "attend/serve/protocols/pooling/embedding_api.h"

#include <fmt/format.h>

#include <ctime>
#include <mutex>
#include <random>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/version.h"
#include "attend/serve/http/memory.h"
#include "attend/serve/json/json_text.h"
#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/tokenization.h"

namespace attend::serve {

// One embedding request.
class EmbeddingApi::Call : public ReadyHandler {
 public:
  Call(EmbeddingApi& api, std::shared_ptr<Exchange> exchange, std::string path)
      : ReadyHandler(std::move(exchange)), api_(api), embedder_(api.embedder_), path_(std::move(path)) {}

  // Queues the inputs, unless the client has disconnected. Runs on a worker thread.
  void submit(std::vector<std::vector<int32_t>> inputs, std::vector<std::vector<int32_t>> token_types,
              EmbeddingCallback callback) {
    const std::lock_guard lock(mutex_);
    for (const auto& input : inputs) num_tokens_ += input.size();
    num_inputs_ = inputs.size();
    if (!gone_) id_ = embedder_.submit(std::move(inputs), std::move(callback), std::move(token_types));
  }
  // Sets the result: the body of a reply, or an error. May be called from any thread.
  void end(std::string body, std::exception_ptr error) noexcept {
    {
      const std::lock_guard lock(mutex_);
      body_ = std::move(body);
      error_ = std::move(error);
    }
    api_.ready_queue_.add_now(*this);
  }
  void receive() override {
    const auto self = std::static_pointer_cast<Call>(shared_from_this());
    if (api_.calls_.erase(self) == 0) return;  // the client has disconnected
    exchange().on_disconnect = nullptr;
    int status = 200;
    if (error_) {
      const ApiError error = to_api_error(error_);
      answer_error(exchange(), path_, error);
      status = error.status;
    } else {
      exchange().reply(status, kJsonType, std::move(body_));
    }
    if (api_.options_.log_requests) log(status);
  }
  // Drops the inputs that are still queued.
  void disconnect() {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    if (id_) embedder_.cancel(*id_);
  }
  size_t num_tokens() const {
    const std::lock_guard lock(mutex_);
    return num_tokens_;
  }

  const std::string& path() const { return path_; }

  void log(int status) const {
    const std::lock_guard lock(mutex_);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    JsonText line;
    line.begin_object().key("path").text(path_).key("status").integer(status);
    line.key("inputs").integer(static_cast<int64_t>(num_inputs_));
    line.key("prompt_tokens").integer(static_cast<int64_t>(num_tokens_)).key("seconds").number(seconds);
    log_record(line.end_object().take());
  }

 private:
  EmbeddingApi& api_;
  AsyncEmbedder& embedder_;
  std::string path_;
  Clock::time_point start_ = Clock::now();

  mutable std::mutex mutex_;
  std::optional<uint64_t> id_;
  bool gone_ = false;
  size_t num_inputs_ = 0, num_tokens_ = 0;
  std::string body_;
  std::exception_ptr error_;
};

EmbeddingApi::EmbeddingApi(AsyncEmbedder& embedder, ApiOptions options, Executor& executor,
                           std::function<HttpMetrics()> http_metrics)
    : Service(std::move(options), executor, std::move(http_metrics)),
      embedder_(embedder),
      id_prefix_(fmt::format("{:016x}", (uint64_t{std::random_device{}()} << 32) | std::random_device{}())),
      health_(executor, probed_engine(), "the embedder did not return a vector") {
  static constexpr RouteTo<EmbeddingApi> kRoutes[] = {
      {"POST", "/tokenize", &EmbeddingApi::tokenize, Needs::kKey},
      {"POST", "/v1/tokenize", &EmbeddingApi::tokenize, Needs::kKey},
      {"GET", "/health_generate", &EmbeddingApi::health_generate, Needs::kNothing},
      {"GET", "/model_info", &EmbeddingApi::model_info, Needs::kKey},
      {"GET", "/get_model_info", &EmbeddingApi::model_info, Needs::kKey},
      {"GET", "/server_info", &EmbeddingApi::server_info, Needs::kKey},
      {"GET", "/get_server_info", &EmbeddingApi::server_info, Needs::kKey},
      {"GET", "/metrics", &EmbeddingApi::metrics, Needs::kNothing},
  };
  add_routes<EmbeddingApi>(this, kRoutes);
  for (const PoolingEndpoint& endpoint : kPoolingEndpoints)
    add_route({"POST", endpoint.path, Needs::kKey,
               [this, &endpoint](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                 answer(endpoint, request, exchange);
               }});
  for (const Endpoint* endpoint : kEndpoints)
    add_route({"POST", endpoint->path, Needs::kKey,
               [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                 no_generation(request, exchange);
               }});
}

EmbeddingApi::~EmbeddingApi() = default;

void EmbeddingApi::no_generation(const HttpRequest& request, const std::shared_ptr<Exchange>&) {
  const bool scores = embedder_.info().classifier.has_value();
  throw ApiError{
      400,
      request.path + (scores ? ": this server returns scores, not text; use POST /v1/rerank, /v1/score "
                               "or /v1/classify"
                             : ": this server returns embeddings, not text; use POST /v1/embeddings"),
      {},
      "unsupported"};
}

void EmbeddingApi::answer(const PoolingEndpoint& endpoint, const HttpRequest& request,
                          const std::shared_ptr<Exchange>& exchange) {
  check_available();
  check_queue();
  const auto call = std::make_shared<Call>(*this, exchange, request.path);
  std::string id = request.request_id;
  if (id.empty()) id = fmt::format("{}{}{:08x}", endpoint.id_prefix, id_prefix_, ++num_ids_);
  exchange->on_disconnect = [this, weak = std::weak_ptr(call)](int status) {
    if (const auto gone = weak.lock(); gone && calls_.erase(gone) > 0) {
      gone->disconnect();
      if (options_.log_requests) gone->log(status);
    }
  };
  calls_.insert(call);
  try {
    executor_.work([this, &endpoint, call, id = std::move(id), body = request.body] {
      if (auto error = catch_error([&] { submit(endpoint, id, body, call); }))
        call->end({}, std::move(error));
    });
  } catch (...) {
    exchange->on_disconnect = nullptr;
    calls_.erase(call);
    throw;
  }
}

void EmbeddingApi::submit(const PoolingEndpoint& endpoint, const std::string& id, const std::string& body,
                          const std::shared_ptr<Call>& call) {
  const Json json = parse_body(body, options_.max_request_items);
  check_model(Fields(json).string("model").value_or(""));
  PoolingJob job = endpoint.read(json, {.info = embedder_.info(), .tokenizer = embedder_.tokenizer()});
  log_ignored(job.ignored);
  check_lengths(job);
  const auto reply = std::make_shared<const decltype(job.reply)>(std::move(job.reply));
  const auto done = [this, call, reply, id](EmbeddingResult result) mutable {
    const auto make = [this, call, reply, id](EmbeddingResult& made) {
      if (made.vectors.empty()) {
        if (made.code == ErrorCode::kOutOfMemory) throw out_of_memory();
        ApiError failure = to_api_error(std::make_exception_ptr(Error(made.code, made.message)));
        failure.code = "embedding_failed";
        throw failure;
      }
      const PoolingReplyHead head{.id = id,
                                  .model = options_.served_names.front(),
                                  .created = static_cast<int64_t>(std::time(nullptr)),
                                  .num_tokens = call->num_tokens()};
      call->end((*reply)(std::move(made.vectors), head), {});
    };
    // Formats the vectors on a worker, so that the embedder does not wait.
    const auto hand_on = [&] {
      executor_.work([call, make, result = std::move(result)]() mutable {
        if (auto error = catch_error([&] { make(result); })) call->end({}, std::move(error));
      });
    };
    if (auto error = catch_error(hand_on)) call->end({}, std::move(error));
  };
  try {
    // Requests that arrived with this one may have filled the queue, and other workers check it too.
    const std::lock_guard lock(queue_mutex_);
    check_queue();
    call->submit(std::move(job.inputs), std::move(job.token_types), done);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    reject(job.inputs_field, job.inputs_field, ": ", error.what());
  }
}

// Counts inputs, not requests, since a request may have thousands of inputs.
void EmbeddingApi::check_queue() const {
  if (options_.max_queued_requests > 0 &&
      embedder_.metrics().num_waiting >= options_.max_queued_requests + health_.num_submitted())
    throw queue_full(options_.max_queued_requests);
}

void EmbeddingApi::check_lengths(const PoolingJob& job) const {
  const auto longest = static_cast<size_t>(embedder_.info().max_input_tokens);
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    if (job.inputs[i].size() <= longest) continue;
    const bool is_first = i < job.num_firsts;
    const std::string& field = is_first ? job.firsts_field : job.inputs_field;
    throw ApiError{400,
                   fmt::format("{}[{}] has {} tokens: the model accepts at most {}{}", field,
                               is_first ? i : i - job.num_firsts, job.inputs[i].size(), longest, job.hint),
                   field, "context_length_exceeded"};
  }
}

void EmbeddingApi::abort_all() {
  for (const std::shared_ptr<Call>& call : calls_) {
    call->disconnect();
    call->exchange().on_disconnect = nullptr;
    run_guarded(call->exchange(), [&] {
      answer_error(call->exchange(), call->path(), {503, "the server is shutting down", {}, "shutting_down"});
    });
  }
  calls_.clear();
}

void EmbeddingApi::tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, body = request.body] {
    const Json json = parse_body(body, options_.max_request_items);
    const Fields fields(json);
    check_model(fields.string("model").value_or(""));
    if (!embedder_.tokenizer()) reject_unsupported("prompt", "the model has no tokenizer");
    const TextToTokenize read = read_text_to_tokenize(fields);
    const std::vector<int32_t> ids = embedder_.tokenizer()->encode(read.text, read.add_special_tokens);
    return tokenize_reply(fields, *embedder_.tokenizer(), ids, max_model_len());
  });
}

ProbedEngine EmbeddingApi::probed_engine() {
  const auto steps_while_busy = [this]() -> std::optional<int64_t> {
    const EngineMetrics metrics = embedder_.metrics();
    if (metrics.num_running + metrics.num_waiting == 0) return std::nullopt;
    return metrics.num_steps;
  };
  const auto submit = [this](const std::function<void(bool)>& done) {
    embedder_.submit({{0}}, [done](const EmbeddingResult& result) { done(!result.vectors.empty()); });
  };
  return {steps_while_busy, submit};
}

void EmbeddingApi::health_generate(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  check_available();
  health_.answer(exchange);
}

void EmbeddingApi::model_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string path = options_.model_path.string();
  answer_on_worker(request, exchange, [this, path] {
    return json_text({{"model_path", path},
                      {"served_model_name", options_.served_names.front()},
                      {"tokenizer_path", path},
                      {"is_generation", false},
                      {"weight_version", "default"},
                      {"has_chat_template", false},
                      {"model_type", embedder_.info().model}});
  });
}

void EmbeddingApi::server_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const EmbedderInfo& info = embedder_.info();
  answer_on_worker(request, exchange, [this, &info] {
    return json_text({{"version", attend::version()},
                      {"model_path", options_.model_path.string()},
                      {"served_model_name", options_.served_names.front()},
                      {"is_embedding", !info.classifier.has_value()},
                      {"dimensions", info.dimensions},
                      {"labels", info.classifier ? Json(info.classifier->labels) : Json()},
                      {"activation", info.classifier ? Json(to_string(info.classifier->activation)) : Json()},
                      {"pooling", to_string(info.pooling)},
                      {"normalize", info.normalize},
                      {"dtype", to_string(info.dtype)},
                      {"prefill_attention_backend", info.resolution.prefill->name},
                      {"page_size", info.resolution.page_size},
                      {"context_length", info.max_input_tokens},
                      {"max_step_tokens", info.max_step_tokens},
                      {"max_step_inputs", info.max_step_inputs}});
  });
}

void EmbeddingApi::metrics(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->reply(200, "text/plain; version=0.0.4; charset=utf-8",
                  metrics_text(embedder_.metrics(), http_metrics_(), options_.served_names.front(),
                               options_.metric_names));
}

}  // namespace attend::serve
