// Api: endpoints of a server that generates text. It uses HTTP only through HttpRequest and Exchange.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "attend/engine/async_engine.h"
#include "attend/grammar/grammar_compiler.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/protocols/control/control_endpoints.h"
#include "attend/serve/protocols/generation.h"
#include "attend/serve/protocols/monitoring/health_probe.h"
#include "attend/serve/protocols/responses/response_store.h"
#include "attend/serve/protocols/service.h"
#include "attend/text/chat_template/chat_template.h"

namespace attend::serve {

// Used on the I/O thread, except for work that is passed to worker threads.
class Api : public Service {
 public:
  Api(AsyncEngine& engine, std::optional<ChatTemplate> chat, const ChatFormats& formats,
      const GrammarOptions& grammars, ApiOptions options, Executor& executor,
      std::function<HttpMetrics()> http_metrics);
  ~Api() override;

  size_t num_active() const override { return generations_.size(); }
  void abort_all() override;

 private:
  int max_model_len() const override { return engine_.info().context_length; }
  std::string engine_failure() const override { return engine_.failure(); }
  std::vector<AdapterPath> adapters() const override { return engine_.adapters(); }
  void check_queue() const;
  int max_waiting() const;
  ProbedEngine probed_engine();

  void no_pooling(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void count_tokens(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void tokenizer_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void health_generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void model_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void server_info(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void flush_cache(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void load_adapter(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void unload_adapter(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  // Operations of a running engine (control_endpoints.h).
  using Control = void (*)(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                           const SendJson& send);
  void add_control_routes();
  void continue_generation(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void is_sleeping(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void start_profile(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void stop_profile(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void abort_request(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void metrics(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void delete_response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void response_input_items(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void cancel_response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void compact_response(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void response_input_tokens(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void web_page(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  void generate(const Endpoint& endpoint, const HttpRequest& request,
                const std::shared_ptr<Exchange>& exchange);
  void log_request(const Generation& ended, int status, const std::string& path,
                   const std::string& traceparent) const;
  // Reads a body. Runs on a worker thread, like the next functions.
  GenerationJob read(const Endpoint& endpoint, const std::string& body);
  // Reads the body and applies the chat template.
  GenerationJob prepare(const Endpoint& endpoint, const std::string& body);
  // Submits the job to the engine, after its grammar, if any, has been compiled.
  void submit(GenerationJob job, const std::shared_ptr<Generation>& generation);
  // Job with a grammar that is being compiled.
  struct GrammarJob {
    GrammarJob(GenerationJob its_job, std::shared_ptr<Generation> its_generation)
        : job(std::move(its_job)), generation(std::move(its_generation)) {}
    GenerationJob job;
    std::shared_ptr<Generation> generation;
    GrammarResult result;
  };
  void submit_compiled(GrammarJob& compiled);
  // Starts the grammar after the reasoning, and limits the reasoning to the requested number of tokens.
  void add_reasoning_masks(GenerationJob& job) const;
  // Throws ApiError unless adapters may be loaded and unloaded.
  void check_lora_enabled() const;
  // Throws ApiError for a text that cannot fit the context, so that it is not encoded.
  void check_prompt_bytes(const char* param, size_t num_bytes) const;
  // Rejects images that the engine does not encode, and truncation of prompts with images.
  void check_images(const Endpoint& endpoint, const GenerationJob& job) const;
  // `param`: field with the conversation, for errors.
  std::vector<int32_t> apply_template(const char* param, GenerationJob& job) const;
  // The same for a prompt that has to fit the context: it is truncated, or its oldest messages are dropped,
  // if the request allows this.
  std::vector<int32_t> fitting_prompt(const std::string& param, GenerationJob& job) const;
  // The same as apply_template() with all tokens of images.
  std::vector<int32_t> expanded_prompt(const char* param, GenerationJob& job) const;

  AsyncEngine& engine_;
  std::optional<ChatTemplate> chat_;
  ChatFormats formats_;
  SamplingDefaults defaults_;
  ServedWeights weights_;
  ResponseStore responses_;
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> generations_;
  GrammarCompiler grammars_;  // destroyed first of those above, since it calls back
  HealthProbe health_;
};

}  // namespace attend::serve
