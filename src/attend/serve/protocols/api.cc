#include "attend/serve/protocols/api.h"

#include <fmt/format.h>

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/version.h"
#include "attend/grammar/check_schema.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/serve/json/json_text.h"
#include "attend/serve/protocols/adapter_endpoints.h"
#include "attend/serve/protocols/anthropic/messages.h"
#include "attend/serve/protocols/pooling/pooling_endpoint.h"
#include "attend/serve/protocols/random_id.h"
#include "attend/serve/protocols/responses/response_request.h"
#include "attend/serve/protocols/responses/stored_responses.h"
#include "attend/serve/protocols/tokenization.h"
#include "attend/serve/protocols/truncate_messages.h"
#include "attend/serve/web/web_files.h"

namespace attend::serve {
namespace {

Json speculative_algorithm(const SpeculativeOptions& options) {
  if (!options.algorithm) return nullptr;
  return to_string(*options.algorithm);
}

// Returns the method's name, or null if no weight is quantized, regardless of config.json.
Json quantization_method(const ExecutorInfo& info) {
  if (!has_quantized(info.weight_formats)) return nullptr;
  return info.quantization.method;
}

// Returns null for no limit.
Json queue_limit(int max_queued_requests) {
  if (max_queued_requests == 0) return nullptr;
  return max_queued_requests;
}

bool is_context_exceeded(const ApiError& error) { return error.code == "context_length_exceeded"; }

// Returns the segment after "/v1/responses/".
std::string response_id(const HttpRequest& request) {
  const std::string id = request.path.substr(std::string_view("/v1/responses/").size());
  return id.substr(0, id.find('/'));
}

Json draft_model_path(const SpeculativeOptions& options) {
  if (options.draft_model_path.empty()) return nullptr;
  return options.draft_model_path.string();
}

// Returns null without a draft model.
Json draft_number(int number) {
  if (number == 0) return nullptr;
  return number;
}

// Returns the tool whose schema a grammar does not support, or null.
const Tool* find_rejected_tool(const GenerationJob& job) {
  if (!job.answer || job.grammar->param != "tools") return nullptr;
  for (const Tool& tool : job.answer->tools) try {
      check_schema(json_text(tool.parameters));
    } catch (const Error&) {
      return &tool;
    }
  return nullptr;
}

Json internal_state(const AsyncEngine& engine) {
  if (!engine.info().speculation.algorithm) return Json::object();
  return {{"avg_spec_accept_length", engine.metrics().drafts.accept_length()}};
}

}  // namespace

Api::Api(AsyncEngine& engine, std::optional<ChatTemplate> chat, const ChatFormats& formats,
         const GrammarOptions& grammars, ApiOptions options, Executor& executor,
         std::function<HttpMetrics()> http_metrics)
    : Service(std::move(options), executor, std::move(http_metrics)),
      engine_(engine),
      chat_(std::move(chat)),
      formats_(formats),
      defaults_(SamplingDefaults::read(options_.model_path)),
      weights_(options_.model_path),
      responses_(options_.stored_responses),
      grammars_(grammars.library, GrammarVocabulary::make(engine.tokenizer(), engine.model_spec()),
                grammars.limits),
      health_(executor, probed_engine(), "the engine did not generate a token") {
  engine_.set_after_outputs([this] { ready_queue_.release(); });
  for (const Endpoint* endpoint : kEndpoints)
    add_route({"POST", endpoint->path, Needs::kKey,
               [this, endpoint](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                 generate(*endpoint, request, exchange);
               }});
  static constexpr RouteTo<Api> kRoutes[] = {
      {"POST", "/v1/responses/input_tokens", &Api::response_input_tokens, Needs::kKey},
      {"GET", "/v1/responses/*", &Api::response, Needs::kKey},
      {"DELETE", "/v1/responses/*", &Api::delete_response, Needs::kKey},
      {"GET", "/v1/responses/*/input_items", &Api::response_input_items, Needs::kKey},
      {"POST", "/v1/responses/*/cancel", &Api::cancel_response, Needs::kKey},
      {"POST", "/v1/responses/compact", &Api::compact_response, Needs::kKey},
      {"POST", "/v1/messages/count_tokens", &Api::count_tokens, Needs::kKey},
      {"POST", "/tokenize", &Api::tokenize, Needs::kKey},
      {"POST", "/v1/tokenize", &Api::tokenize, Needs::kKey},
      {"POST", "/detokenize", &Api::detokenize, Needs::kKey},
      {"POST", "/v1/detokenize", &Api::detokenize, Needs::kKey},
      {"GET", "/tokenizer_info", &Api::tokenizer_info, Needs::kKey},
      {"GET", "/health_generate", &Api::health_generate, Needs::kNothing},
      {"GET", "/metrics", &Api::metrics, Needs::kNothing},
      {"GET", "/model_info", &Api::model_info, Needs::kKey},
      {"GET", "/get_model_info", &Api::model_info, Needs::kKey},
      {"GET", "/server_info", &Api::server_info, Needs::kKey},
      {"GET", "/get_server_info", &Api::server_info, Needs::kKey},
      {"POST", "/flush_cache", &Api::flush_cache, Needs::kAdminKey},
      {"POST", "/reset_prefix_cache", &Api::flush_cache, Needs::kAdminKey},
      {"POST", "/v1/load_lora_adapter", &Api::load_adapter, Needs::kAdminKey},
      {"POST", "/load_lora_adapter", &Api::load_adapter, Needs::kAdminKey},
      {"POST", "/v1/unload_lora_adapter", &Api::unload_adapter, Needs::kAdminKey},
      {"POST", "/unload_lora_adapter", &Api::unload_adapter, Needs::kAdminKey},
      {"POST", "/continue_generation", &Api::continue_generation, Needs::kAdminKey},
      {"GET", "/is_sleeping", &Api::is_sleeping, Needs::kKey},
      {"POST", "/start_profile", &Api::start_profile, Needs::kAdminKey},
      {"POST", "/stop_profile", &Api::stop_profile, Needs::kAdminKey},
      {"POST", "/abort_request", &Api::abort_request, Needs::kAdminKey},
      {"GET", "/", &Api::web_page, Needs::kNothing},
  };
  add_routes<Api>(this, kRoutes);
  add_control_routes();
  for (const PoolingEndpoint& endpoint : kPoolingEndpoints)
    add_route({"POST", endpoint.path, Needs::kKey,
               [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                 no_pooling(request, exchange);
               }});
}

Api::~Api() = default;

void Api::no_pooling(const HttpRequest& request, const std::shared_ptr<Exchange>&) {
  throw ApiError{
      400,
      request.path + ": this server generates text with " + engine_.info().target().model +
          ": start attend serve with --is-embedding for vectors, or with --is-reranker for scores of "
          "a reranker",
      {},
      "unsupported"};
}

void Api::generate(const Endpoint& endpoint, const HttpRequest& request,
                   const std::shared_ptr<Exchange>& exchange) {
  check_available();
  check_queue();
  ReplyHead head{random_id(endpoint.id_prefix), options_.served_names.front(), std::time(nullptr)};
  head.request_id = request.request_id.empty() ? head.id : request.request_id;
  if (!endpoint.has_own_ids) head.id = head.request_id;
  const auto end = [this, path = request.path, traceparent = request.traceparent](const Generation& ended,
                                                                                  int status) {
    generations_.erase(&ended);
    if (options_.log_requests) log_request(ended, status, path, traceparent);
  };
  const auto generation =
      std::make_shared<Generation>(endpoint, engine_, executor_, ready_queue_, exchange, head,
                                   [end](const Generation& ended) { end(ended, ended.status()); });
  exchange->on_disconnect = [end, weak = std::weak_ptr(generation)](int status) {
    if (const auto gone = weak.lock()) {
      gone->disconnect();
      end(*gone, status);
    }
  };
  generations_.emplace(generation.get(), generation);
  try {
    executor_.work([this, &endpoint, body = request.body, generation] {
      if (generation->is_disconnected()) return;
      if (auto error = catch_error([&] { submit(prepare(endpoint, body), generation); }))
        generation->reject(std::move(error));
    });
  } catch (...) {
    exchange->on_disconnect = nullptr;
    generations_.erase(generation.get());
    throw;
  }
}

// The request of the health probe does not count.
int Api::max_waiting() const {
  const int limit = options_.max_queued_requests;
  return limit > 0 ? limit + health_.num_submitted() : 0;
}

void Api::check_queue() const {
  if (options_.max_queued_requests > 0 && engine_.num_waiting() >= max_waiting())
    throw queue_full(options_.max_queued_requests);
}

void Api::log_request(const Generation& ended, int status, const std::string& path,
                      const std::string& traceparent) const {
  int64_t num_tokens = 0;
  for (const Choice& choice : ended.choices()) num_tokens += std::ssize(choice.token_ids);
  const Choice none;
  const Choice& first = ended.choices().empty() ? none : ended.choices().front();
  JsonText line;
  line.begin_object()
      .key("id")
      .text(ended.head().request_id)
      .key("path")
      .text(path)
      .key("status")
      .integer(status);
  line.key("prompt_tokens").integer(first.num_prompt_tokens);
  line.key("cached_tokens").integer(first.num_cached_tokens);
  if (first.cache_miss) line.key("cache_miss_position").integer(first.cache_miss->position);
  line.key("completion_tokens").integer(num_tokens).key("finish_reasons").begin_array();
  for (const Choice& choice : ended.choices()) line.text(to_string(choice.finish_reason));
  line.end_array().key("seconds_to_first_token").number(ended.seconds_to_first_token());
  line.key("seconds").number(ended.seconds());
  if (!traceparent.empty()) line.key("traceparent").text(traceparent);
  log_record(line.end_object().take());
}

GenerationJob Api::read(const Endpoint& endpoint, const std::string& body) {
  const Json json = parse_body(body, options_.max_request_items);
  GenerationJob job = endpoint.read_stored ? endpoint.read_stored(json, defaults_, formats_, responses_)
                                           : endpoint.read(json, defaults_, formats_);
  check_model(job.model);
  if (job.adapter.empty())
    job.adapter = adapter_of(job.model);
  else if (adapter_of(job.adapter) != job.adapter)
    reject("lora_path", "lora_path ", excerpt(job.adapter),
           ": expected the name of an adapter that GET /v1/models lists");
  log_ignored(job.ignored);
  return job;
}

GenerationJob Api::prepare(const Endpoint& endpoint, const std::string& body) {
  GenerationJob job = read(endpoint, body);
  job.incremental = job.stream && options_.incremental_streaming_output;
  check_images(endpoint, job);
  if (job.variables.empty()) return job;
  std::vector<int32_t> ids = fitting_prompt(endpoint.client_field_name("prompt", /*is_text=*/false), job);
  if (!job.has_max_tokens)
    job.params.max_new_tokens = engine_.info().context_length - static_cast<int>(ids.size());
  job.prompts.emplace_back(std::move(ids));
  return job;
}

std::vector<int32_t> Api::fitting_prompt(const std::string& param, GenerationJob& job) const {
  const int context = engine_.info().context_length;
  const auto encode = [&] {
    std::vector<int32_t> ids = apply_template(param.c_str(), job);
    if (job.truncate_prompt) truncate_prompt(ids, max_prompt_tokens(*job.truncate_prompt, context));
    if (static_cast<int>(ids.size()) >= context)
      throw ApiError{400,
                     fmt::format("{} of {} tokens: the context has room for {}, including one for the answer",
                                 param, ids.size(), context),
                     param, "context_length_exceeded"};
    return ids;
  };
  std::optional<std::vector<int32_t>> ids;
  try {
    return encode();
  } catch (const ApiError& error) {
    if (!is_context_exceeded(error) || !job.drops_messages) throw;
    const MessageTruncation truncation(job.variables);
    // Each message adds tokens: the fewest that have to be dropped are found in a logarithmic number of
    // steps.
    size_t low = 1, high = truncation.max_dropped() + 1;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      job.variables = truncation.without_oldest(middle);
      try {
        ids = encode();
        high = middle;
      } catch (const ApiError& still) {
        if (!is_context_exceeded(still)) throw;
        low = middle + 1;
      }
    }
    if (!ids) throw;
    job.variables = truncation.without_oldest(high);
  }
  return *std::move(ids);
}

void Api::submit(GenerationJob job, const std::shared_ptr<Generation>& generation) {
  // Requests that arrived with this one may have filled the queue.
  const int max_waiting = this->max_waiting();
  if (!job.grammar) {
    add_reasoning_masks(job);
    return generation->submit(std::move(job), max_waiting);
  }
  const Grammar grammar = job.grammar->grammar;
  const auto waiting = std::make_shared<GrammarJob>(std::move(job), generation);
  grammars_.compile(grammar, [this, waiting](GrammarResult result) {
    waiting->result = std::move(result);
    // Prompts are encoded on a worker thread: all grammars share the compiler's.
    const auto error = catch_error([&] { executor_.work([this, waiting] { submit_compiled(*waiting); }); });
    if (error) waiting->generation->reject(error);
  });
}

void Api::submit_compiled(GrammarJob& compiled) {
  GenerationJob& job = compiled.job;
  const auto error = catch_error([&] {
    if (compiled.result.error) {
      ApiError rejection = to_api_error(std::make_exception_ptr(*compiled.result.error));
      rejection.param = job.grammar->param;
      if (const Tool* tool = find_rejected_tool(job))
        rejection.message = "tools: the schema of " + excerpt(tool->name) + ": " + rejection.message;
      throw rejection;
    }
    job.mask = std::move(compiled.result.mask);
    add_reasoning_masks(job);
    compiled.generation->submit(std::move(job), max_waiting());
  });
  if (error) compiled.generation->reject(error);
}

void Api::add_reasoning_masks(GenerationJob& job) const {
  if (!job.answer || !job.answer->reasoning) return;
  const AnswerFormat& answer = *job.answer;
  if (job.mask)
    job.mask = make_reasoning_mask(*answer.reasoning, std::move(job.mask), *engine_.tokenizer(),
                                   answer.inside_reasoning, engine_.model_spec().eos_token_ids,
                                   answer.tool_format ? answer.tool_format->opens : Texts{});
  if (answer.max_reasoning_tokens)
    job.mask = make_reasoning_budget(*answer.reasoning, std::move(job.mask), *engine_.tokenizer(),
                                     answer.inside_reasoning, *answer.max_reasoning_tokens);
}

void Api::check_images(const Endpoint& endpoint, const GenerationJob& job) const {
  if (job.images.empty()) return;
  const std::string param = endpoint.client_field_name("prompt", /*is_text=*/false);
  const std::string& reason = engine_.info().no_images;
  if (!reason.empty()) reject_unsupported(param, "images: ", reason);
  if (job.truncate_prompt || job.drops_messages)
    reject_unsupported(param, "prompts with images are not truncated");
}

std::vector<int32_t> Api::expanded_prompt(const char* param, GenerationJob& job) const {
  std::vector<int32_t> ids = apply_template(param, job);
  if (!job.images.empty()) place_images(engine_.model_spec(), job.images, ids);
  return ids;
}

void Api::check_prompt_bytes(const char* param, size_t num_bytes) const {
  const EngineInfo& info = engine_.info();
  if (num_bytes > info.max_prompt_bytes())
    throw ApiError{400,
                   fmt::format("{} of {} bytes: the context holds {} tokens of at most {} bytes", param,
                               num_bytes, info.context_length, info.max_token_bytes),
                   param, "context_length_exceeded"};
}

std::vector<int32_t> Api::apply_template(const char* param, GenerationJob& job) const {
  if (!chat_ || !engine_.tokenizer())
    reject_unsupported(param, "the model has no chat template; start the server with --chat-template");
  const std::string variables =
      formats_.tools ? write_call_ids(*formats_.tools, job.variables) : job.variables;
  std::vector<ChatTemplate::Part> parts = job.continued.empty()
                                              ? chat_->render(variables, job.add_generation_prompt)
                                              : chat_->render_continued(variables, job.continued);
  if (job.answer && job.answer->reasoning) {
    std::string prompt;
    for (const ChatTemplate::Part& part : parts) prompt += part.text;
    job.answer->inside_reasoning = opens_reasoning(*job.answer->reasoning, prompt);
  }
  size_t num_bytes = 0;
  for (const ChatTemplate::Part& part : parts) num_bytes += part.text.size();
  check_prompt_bytes(param, num_bytes);
  if (!job.images.empty()) write_placeholders(engine_.model_spec(), parts);
  return encode_parts(*engine_.tokenizer(), parts);
}

void Api::tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, body = request.body] {
    const Json json = parse_body(body, options_.max_request_items);
    const Fields fields(json);
    check_model(fields.string("model").value_or(""));
    const Tokenizer* tokenizer = engine_.tokenizer();
    if (!tokenizer) reject_unsupported("prompt", "the model has no tokenizer");
    std::vector<int32_t> ids;
    if (fields.has("messages")) {
      GenerationJob job = kChatCompletions.read(json, defaults_, formats_);
      check_images(kChatCompletions, job);
      ids = expanded_prompt("messages", job);
    } else {
      const TextToTokenize read = read_text_to_tokenize(fields, ", or messages");
      check_prompt_bytes(read.param, read.text.size());
      ids = tokenizer->encode(read.text, read.add_special_tokens);
      fields.has("return_token_strs");
      log_ignored(fields.unknown());
    }
    return tokenize_reply(fields, *tokenizer, ids, engine_.info().context_length);
  });
}

void Api::count_tokens(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, body = request.body] {
    GenerationJob job = read_countable(parse_body(body, options_.max_request_items), defaults_, formats_);
    check_model(job.model);
    log_ignored(job.ignored);
    check_images(kMessages, job);
    return json_text({{"input_tokens", expanded_prompt("messages", job).size()}});
  });
}

void Api::detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, body = request.body] {
    const Json json = parse_body(body, options_.max_request_items);
    const Fields fields(json);
    check_model(fields.string("model").value_or(""));
    const Tokenizer* tokenizer = engine_.tokenizer();
    if (!tokenizer) reject_unsupported("tokens", "the model has no tokenizer");
    // The larger vocabulary: some tokenizers have tokens that the model lacks, and some models pad their
    // vocabulary.
    return detokenize_reply(fields, *tokenizer,
                            std::max(engine_.model_spec().vocab_size, tokenizer->vocab_size()));
  });
}

// Like vLLM: with this endpoint and the two above, a client needs no tokenizer.
void Api::tokenizer_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this] {
    const Tokenizer* tokenizer = engine_.tokenizer();
    if (!tokenizer) throw ApiError{404, "the model has no tokenizer", {}, "not_found"};
    const auto spelled = [&](std::optional<int32_t> id) { return id ? Json(tokenizer->token(*id)) : Json(); };
    return json_text({{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"bos_token", spelled(tokenizer->bos_id())},
                      {"eos_token", spelled(tokenizer->eos_id())},
                      {"pad_token", spelled(tokenizer->pad_id())},
                      {"vocab_size", tokenizer->vocab_size()},
                      {"model_max_length", engine_.info().context_length}});
  });
}

ProbedEngine Api::probed_engine() {
  const auto steps_while_busy = [this]() -> std::optional<int64_t> {
    const EngineMetrics metrics = engine_.metrics();
    if (metrics.num_running + metrics.num_waiting == 0) return std::nullopt;
    return metrics.num_steps;
  };
  const auto submit = [this](std::function<void(bool)> done) {
    GenerationRequest request{std::vector<int32_t>{0}, {}};
    request.params.max_new_tokens = 1;
    request.params.ignore_eos = true;
    engine_.submit(std::move(request), [done = std::move(done)](const RequestOutput& output) {
      if (output.finished())
        done(output.finish_reason == FinishReason::kLength || output.finish_reason == FinishReason::kStop);
    });
  };
  return {steps_while_busy, submit};
}

void Api::health_generate(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  check_available();
  health_.answer(exchange);
}

void Api::model_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, path = options_.model_path.string()] {
    const ServedWeights::Source weights = weights_.get();
    return json_text({{"model_path", weights.path.string()},
                      {"served_model_name", options_.served_names.front()},
                      {"tokenizer_path", path},
                      {"is_generation", true},
                      {"preferred_sampling_params", nullptr},
                      {"weight_version", weights.version},
                      {"has_chat_template", chat_.has_value()},
                      {"model_type", engine_.info().target().model}});
  });
}

void Api::server_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const EngineInfo& info = engine_.info();
  answer_on_worker(request, exchange, [this, &info] {
    const ExecutorInfo& target = info.target();
    return json_text({{"version", attend::version()},
                      {"model_path", weights_.get().path.string()},
                      {"served_model_name", options_.served_names.front()},
                      {"device", target.hardware.name},
                      {"tp_size", target.num_ranks},
                      {"dtype", to_string(target.dtype)},
                      {"quantization", quantization_method(target)},
                      {"kv_cache_dtype", kernels::cache_dtype_name(target.kv_cache_dtype)},
                      {"prefill_attention_backend", target.resolution.prefill->name},
                      {"decode_attention_backend", target.resolution.decode->name},
                      {"page_size", info.page_size},
                      {"context_length", info.context_length},
                      {"max_total_num_tokens", info.pool_slots},
                      {"max_running_requests", info.limits.max_reqs},
                      {"chunked_prefill_size", info.limits.max_tokens},
                      {"max_queued_requests", queue_limit(options_.max_queued_requests)},
                      {"schedule_policy", to_string(info.schedule_policy)},
                      {"disable_overlap_schedule", !info.overlap_schedule},
                      {"disable_radix_cache", !info.prefix_cache.has_value()},
                      {"enable_hierarchical_cache", info.num_host_cache_tokens > 0},
                      {"hicache_host_tokens", info.num_host_cache_tokens},
                      {"enable_deterministic_inference", info.deterministic},
                      {"speculative_algorithm", speculative_algorithm(info.speculation)},
                      {"speculative_draft_model_path", draft_model_path(info.speculation)},
                      {"speculative_num_steps", draft_number(info.speculation.num_steps)},
                      {"speculative_eagle_topk", draft_number(info.speculation.eagle_topk)},
                      {"speculative_num_draft_tokens", info.speculation.num_draft_tokens},
                      {"internal_states", Json::array({internal_state(engine_)})}});
  });
}

void Api::flush_cache(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  engine_.flush_cache();
  exchange->reply(200, "text/plain", "Cache flushed.\n");
}

// An adapter's path is one of the server's files, so clients may load adapters only if the server's owner
// wants that.
void Api::check_lora_enabled() const {
  if (!options_.enable_lora)
    throw ApiError{400, "adapters are not enabled: start the server with --enable-lora", {}, "unsupported"};
}

void Api::load_adapter(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  check_lora_enabled();
  answer_on_worker(request, exchange, [this, body = request.body] {
    std::vector<std::string> ignored;
    std::string reply = serve::load_adapter(parse_body(body, options_.max_request_items),
                                            options_.served_names, engine_, ignored);
    log_ignored(ignored);
    return reply;
  });
}

void Api::unload_adapter(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  check_lora_enabled();
  answer_on_worker(request, exchange, [this, body = request.body] {
    std::vector<std::string> ignored;
    std::string reply = serve::unload_adapter(parse_body(body, options_.max_request_items), engine_, ignored);
    log_ignored(ignored);
    return reply;
  });
}

void Api::add_control_routes() {
  static constexpr std::pair<std::string_view, Control> kControls[] = {
      {"/pause_generation", &pause_generation},
      {"/release_memory_occupation", &release_memory},
      {"/resume_memory_occupation", &resume_memory},
  };
  for (const auto& [path, operation] : kControls)
    add_route({"POST", path, Needs::kAdminKey,
               [this, operation](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                 answer_later(
                     request, exchange, [this, operation, body = request.body](const SendJson& send) {
                       std::vector<std::string> ignored;
                       operation(parse_body(body.empty() ? "{}" : body, options_.max_request_items), engine_,
                                 ignored, send);
                       (void)catch_error([&] { log_ignored(ignored); });  // the reply may be sent already
                     });
               }});
  add_route({"POST", "/update_weights_from_disk", Needs::kAdminKey,
             [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
               answer_later(request, exchange, [this, body = request.body](const SendJson& send) {
                 std::vector<std::string> ignored;
                 update_weights(parse_body(body, options_.max_request_items), engine_, weights_, ignored,
                                send);
                 (void)catch_error([&] { log_ignored(ignored); });
               });
             }});
  for (const auto& [path, operation] : {std::pair("/sleep", &serve::sleep), {"/wake_up", &serve::wake_up}})
    add_route({"POST", path, Needs::kAdminKey,
               [this, operation](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                 answer_later(request, exchange,
                              [this, operation, query = request.query](const SendJson& send) {
                                operation(query, engine_, send);
                              });
               }});
}

void Api::continue_generation(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  engine_.resume();
  exchange->reply(200, kJsonType, R"({"success":true,"message":"generation continues"})");
}

void Api::is_sleeping(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  const bool sleeps = engine_.released_memory().any();
  exchange->reply(200, kJsonType, sleeps ? R"({"is_sleeping":true})" : R"({"is_sleeping":false})");
}

void Api::start_profile(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Json json =
      request.body.empty() ? Json(Json::object()) : parse_body(request.body, options_.max_request_items);
  const Fields fields(json);
  if (fields.has("output_dir"))
    reject_unsupported("output_dir", "not supported: /stop_profile returns the trace");
  engine_.start_trace(fields.integer("num_steps", 1, INT32_MAX).value_or(0));
  exchange->reply(200, "text/plain", "Recording; POST /stop_profile returns the trace.\n");
}

void Api::stop_profile(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  // Runs on a worker, since writing a million spans takes long.
  answer_on_worker(request, exchange, [this] { return engine_.stop_trace(); });
}

void Api::abort_request(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Json json = parse_body(request.body, options_.max_request_items);
  const Fields fields(json);
  const bool all = fields.boolean("abort_all").value_or(false);
  const std::string rid = fields.string("rid").value_or("");
  if (!all && rid.empty()) reject("rid", "rid: missing; expected the id of a request, or abort_all");
  // As in SGLang, an id matches all ids that begin with it.
  for (const auto& [key, generation] : generations_)
    if (all || generation->head().request_id.starts_with(rid) || generation->head().id.starts_with(rid))
      generation->abort();
  exchange->reply(200, kJsonType, "{}");
}

void Api::abort_all() {
  for (const auto& [key, generation] : generations_) generation->abort();
}

void Api::metrics(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->reply(
      200, "text/plain; version=0.0.4; charset=utf-8",
      metrics_text(engine_.metrics(), http_metrics_(), options_.served_names.front(), options_.metric_names));
}

void Api::response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, id = response_id(request), query = request.query] {
    return stored_response(responses_, id, query);
  });
}

void Api::delete_response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange,
                   [this, id = response_id(request)] { return serve::delete_response(responses_, id); });
}

void Api::response_input_items(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, id = response_id(request), query = request.query] {
    return input_item_list(responses_, id, query);
  });
}

void Api::cancel_response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, id = response_id(request)]() -> std::string {
    serve::cancel_response(responses_, id);
  });
}

void Api::compact_response(const HttpRequest& request, const std::shared_ptr<Exchange>&) {
  throw ApiError{400,
                 request.path +
                     ": not supported; expected shorter input, or truncation \"auto\" in POST "
                     "/v1/responses",
                 {},
                 "unsupported"};
}

void Api::response_input_tokens(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  answer_on_worker(request, exchange, [this, body = request.body] {
    GenerationJob job = read(kResponses, body);
    check_images(kResponses, job);
    const size_t num_tokens =
        (job.drops_messages ? fitting_prompt("input", job) : expanded_prompt("input", job)).size();
    return json_text({{"object", "response.input_tokens"}, {"input_tokens", num_tokens}});
  });
}

void Api::web_page(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  exchange->reply(200, "text/html; charset=utf-8", std::string(kWebPage),
                  {{"Content-Security-Policy",
                    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
                    "'self'; img-src data:"}});
}

}  // namespace attend::serve
