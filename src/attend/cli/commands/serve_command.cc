// Command attend serve: serves a model over an OpenAI-compatible HTTP API.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/checkpoint/model_folder.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/options/grammar_flags.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/report.h"
#include "attend/cli/standard_streams.h"
#include "attend/serve/serve.h"

namespace attend::cli {
namespace {

struct ServeFlags {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  int port = 30000;
  std::string unix_socket;
  std::vector<std::string> served_names;
  std::string chat_template, api_key, admin_api_key;
  std::vector<std::string> cors_origins, allowed_hosts;
  std::string ssl_keyfile, ssl_keyfile_password, ssl_certfile, ssl_ca_certs;
  std::string metric_names = "sglang";
  int tokenizer_threads = 0;
  int max_connections = 8192;
  int max_body_mb = 64;
  size_t max_request_items = serve::kMaxRequestItems;
  int max_stored_responses = 1024;
  int max_stored_responses_mb = 256;
  double drain_timeout = 30.0;
  GrammarFlags grammar;
  std::string tool_call_parser, reasoning_parser;
  bool log_requests = false, log_access = false;
  bool skip_model_name_validation = false, incremental_streaming_output = false;
  bool is_embedding = false, is_reranker = false;
  bool enable_lora = false;
};

serve::MetricNames to_metric_names(const std::string& name) {
  if (name == "sglang") return serve::MetricNames::kSglang;
  if (name == "vllm") return serve::MetricNames::kVllm;
  require(name == "both", "--metric-names ", name, ": expected sglang, vllm or both");
  return serve::MetricNames::kBoth;
}

// Rejects keys that no client can send, and an empty variable, since the server would be open to all.
void check_key(const char* flag, const char* variable, const std::string& key) {
  const char* value = std::getenv(variable);
  require(!key.empty() || value == nullptr, variable, " '': expected a key, or no variable of this name");
  require(std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; }), flag, " or ", variable,
          ": expected visible ASCII characters without spaces or line ends");
}

serve::ServeOptions to_options(const CLI::App& app, const ServeFlags& flags) {
  serve::ServeOptions options;
  options.engine = to_config(app, flags.engine);
  options.http.host = flags.host;
  options.http.port = static_cast<uint16_t>(flags.port);
  options.http.unix_socket = flags.unix_socket;
  options.http.tls = {.key_file = flags.ssl_keyfile,
                      .certificate_file = flags.ssl_certfile,
                      .key_password = flags.ssl_keyfile_password,
                      .client_authority_file = flags.ssl_ca_certs};
  if (flags.tokenizer_threads > 0) options.http.num_workers = flags.tokenizer_threads;
  options.http.max_connections = flags.max_connections;
  options.http.max_body_bytes = static_cast<uint64_t>(flags.max_body_mb) << 20;
  options.http.log_access = flags.log_access;
  options.http.cors_origins = split_lists(flags.cors_origins);
  options.http.allowed_hosts = split_lists(flags.allowed_hosts);
  options.api.model_path = flags.engine.model_path;
  for (const std::string& name : flags.served_names)
    require(!name.empty(), "--served-model-name '': expected a name");
  options.api.served_names = flags.served_names;
  if (flags.served_names.empty()) options.api.served_names = {flags.engine.model_name};
  check_key("--api-key", "ATTEND_API_KEY", flags.api_key);
  check_key("--admin-api-key", "ATTEND_ADMIN_API_KEY", flags.admin_api_key);
  options.api.api_key = flags.api_key;
  options.api.admin_api_key = flags.admin_api_key;
  options.api.max_queued_requests = flags.engine.max_queued_requests;
  options.api.metric_names = to_metric_names(flags.metric_names);
  options.api.log_requests = flags.log_requests;
  options.api.enable_lora = flags.enable_lora || !options.engine.lora_paths.empty();
  options.engine.enable_lora = options.api.enable_lora;
  for (const AdapterPath& adapter : options.engine.lora_paths)
    require(std::ranges::find(options.api.served_names, adapter.name) == options.api.served_names.end(),
            "--lora-paths ", adapter.name, ": the name of the model; expected another one");
  options.api.max_request_items = flags.max_request_items;
  options.api.stored_responses = {.max_responses = static_cast<size_t>(flags.max_stored_responses),
                                  .max_bytes = static_cast<size_t>(flags.max_stored_responses_mb) << 20};
  options.api.skip_model_name_validation = flags.skip_model_name_validation;
  options.api.incremental_streaming_output = flags.incremental_streaming_output;
  options.chat_template = flags.chat_template;
  options.tool_call_parser = flags.tool_call_parser;
  options.reasoning_parser = flags.reasoning_parser;
  options.grammar_library_path = flags.grammar.library_path;
  options.grammar_limits = to_limits(flags.grammar);
  options.drain_timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.drain_timeout * 1000));
  return options;
}

// Logs the progress of loading weights and capturing graphs, at intervals of some seconds and at their end.
class StartupLog {
 public:
  EngineProgress with(EngineProgress bars) {
    return {.resolved = bars.resolved,
            .weights =
                [this, bar = bars.weights](size_t done, size_t total) {
                  bar(done, total);
                  log_progress("weights", done, total,
                               fmt::format("{:.1f} MB", static_cast<double>(total) / 1e6));
                },
            .graphs =
                [this, bar = bars.graphs](const GraphProgressInfo& graphs) {
                  bar(graphs);
                  log_progress("CUDA graphs", static_cast<size_t>(graphs.num_done),
                               static_cast<size_t>(graphs.num_sizes),
                               fmt::format("{} batch sizes", graphs.num_sizes));
                }};
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  static constexpr std::chrono::seconds kPause{5};

  void log_progress(const char* what, size_t done, size_t total, const std::string& amount) {
    const auto now = Clock::now();
    if (has_bars()) return;
    if (done == done_ && total == total_) return;
    if (done < total && now - last_logged_ < kPause) return;
    last_logged_ = now;
    done_ = done;
    total_ = total;
    log_info(fmt::format("{}: {}% of {} after {:.2f} s", what, total > 0 ? 100 * done / total : 100, amount,
                         seconds()));
  }

  Clock::time_point start_ = Clock::now(), last_logged_ = start_;
  size_t done_ = 0, total_ = 0;  // values of the last log line
};

// Flags that apply to an embedding server; the others concern generation.
constexpr std::string_view kEmbeddingFlags[] = {"--model-path",
                                                "--device",
                                                "--dtype",
                                                "--attention-backend",
                                                "--page-size",
                                                "--context-length",
                                                "--load-format",
                                                "--threads",
                                                "--log-kernels",
                                                "--host",
                                                "--port",
                                                "--unix-socket",
                                                "--api-key",
                                                "--served-model-name",
                                                "--skip-model-name-validation",
                                                "--admin-api-key",
                                                "--ssl-certfile",
                                                "--ssl-keyfile",
                                                "--ssl-ca-certs",
                                                "--ssl-keyfile-password",
                                                "--metric-names",
                                                "--cors-origins",
                                                "--allowed-hosts",
                                                "--max-connections",
                                                "--max-body-mb",
                                                "--max-request-items",
                                                "--tokenizer-worker-num",
                                                "--drain-timeout",
                                                "--log-requests",
                                                "--log-access",
                                                "--is-embedding",
                                                "--is-reranker",
                                                "--max-queued-requests"};

EmbedderConfig to_embedder_config(const CLI::App& app, const EngineConfig& engine, bool is_reranker) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string flag = "--" + option->get_lnames().front();
    if (std::ranges::find(kEmbeddingFlags, flag) == std::end(kEmbeddingFlags))
      fail(ErrorCode::kUnsupported, flag, ": has no effect on an embedding server");
  }
  return {.model_path = engine.model_path,
          .load_format = engine.load_format,
          .device = engine.device,
          .dtype = engine.dtype,
          .backend_options = engine.backend_options,
          .max_input_tokens = engine.context_length,
          .is_reranker = is_reranker};
}

void warn_without_tokenizer(const Tokenizer* tokenizer, const std::filesystem::path& model) {
  if (tokenizer == nullptr)
    log_warning(model.string(), ": no tokenizer.json", note_on_missing(MissingFile::kTokenizer, model),
                ": requests with texts are rejected, those with token ids are answered");
}

void run_embeddings(const CLI::App& app, const serve::ServeOptions& options, bool is_reranker,
                    StartupLog& start, EngineBars& bars) {
  serve::ServeEmbeddingOptions embedding{.embedder = to_embedder_config(app, options.engine, is_reranker),
                                         .progress = options.progress.weights,
                                         .http = options.http,
                                         .api = options.api,
                                         .drain_timeout = options.drain_timeout,
                                         .on_ready = {}};
  embedding.on_ready = [&](const std::string& address, const AsyncEmbedder& embedder) {
    bars.clear();
    print_start(embedder.info());
    warn_without_tokenizer(embedder.tokenizer(), options.api.model_path);
    log_info(fmt::format("ready at {} after {:.2f} s", address, start.seconds()));
  };
  serve::serve_embeddings(embedding);
}

int run_serve(const CLI::App& app, const ServeFlags& flags) {
  StartupLog start;
  serve::ServeOptions options = to_options(app, flags);
  // The API rejects requests above the limit itself, with status 503.
  options.engine.schedule.max_queued_requests = 0;
  EngineBars bars;
  options.progress = start.with(bars.progress());
  require(!flags.is_embedding || !flags.is_reranker,
          "--is-embedding and --is-reranker: expected one of them");
  if (flags.is_embedding || flags.is_reranker || !read_config(flags.engine.model_path).generates()) {
    run_embeddings(app, options, flags.is_reranker, start, bars);
    return 0;
  }
  options.on_ready = [&](const std::string& address, const AsyncEngine& engine) {
    bars.clear();
    print_start(engine.info());
    warn_without_tokenizer(engine.tokenizer(), options.api.model_path);
    log_info(fmt::format("ready at {} after {:.2f} s", address, start.seconds()));
  };
  serve::serve(options);
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Command& selected) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP: OpenAI's API and SGLang's");
  add_choice_options(*command, flags->engine, ModelArgument::kPositional);
  add_size_options(*command, flags->engine);
  add_run_options(*command, flags->engine);
  add_adapter_options(*command, flags->engine);
  command->add_flag("--enable-lora", flags->enable_lora,
                    "clients may load and unload LoRA adapters; implied by --lora-paths");
  set_group(*command, "Model");
  add_number(*command, "--random-seed", flags->engine.random_seed,
             "seed of requests without a seed; default: 0");
  set_group(*command, "Server");
  add_text(*command, "--host", flags->host,
           "address to listen on; 127.0.0.1: local connections only, 0.0.0.0: all");
  add_number(*command, "--port", flags->port, "port to listen on; 0: any free port",
             Range<int>{.lowest = 0, .highest = 65535});
  add_text(*command, "--unix-socket,--uds", flags->unix_socket,
           "listen on this Unix socket instead of a TCP port");
  command->add_option("--served-model-name", flags->served_names,
                      "model names in the API, one or several; default: --model-path");
  command->add_flag("--skip-model-name-validation", flags->skip_model_name_validation,
                    "accept any model name in requests");
  set_group(*command, "Answers");
  add_text(*command, "--chat-template", flags->chat_template,
           "file with a chat template, or name of one of the model's templates");
  set_group(*command, "Access");
  add_text(*command, "--api-key", flags->api_key,
           "require this key from clients; health checks and metrics need no key")
      ->envname("ATTEND_API_KEY");
  add_text(
      *command, "--admin-api-key", flags->admin_api_key,
      "key for requests that change the server, such as flush_cache and abort_request; default: --api-key")
      ->envname("ATTEND_ADMIN_API_KEY");
  add_text(*command, "--ssl-certfile", flags->ssl_certfile,
           "PEM file with the server's certificate chain; enables TLS and disables plain HTTP");
  add_text(*command, "--ssl-keyfile", flags->ssl_keyfile, "PEM file with the certificate's private key");
  add_text(*command, "--ssl-keyfile-password", flags->ssl_keyfile_password, "password of the private key");
  add_text(*command, "--ssl-ca-certs", flags->ssl_ca_certs,
           "PEM file with authorities; clients must present a certificate signed by one of them");
  add_repeated(
      *command, "--cors-origins,--allowed-origins", flags->cors_origins,
      "origins of web pages that may send requests, such as https://chat.example, with commas between "
      "them, or *; default: the server's own");
  add_repeated(*command, "--allowed-hosts", flags->allowed_hosts,
               "host names of requests, with commas between them, *.example.com or *; default: any, but for "
               "local connections only localhost, addresses and names without a dot");
  set_group(*command, "Server");
  add_number(*command, "--tokenizer-worker-num", flags->tokenizer_threads,
             "threads that tokenize requests and build replies; default: the number of cores, 4 to 16",
             Range<int>{.lowest = 1, .highest = 256});
  add_number(*command, "--max-connections", flags->max_connections, "maximum number of connections",
             Range<int>{.lowest = 1});
  add_number(*command, "--max-body-mb", flags->max_body_mb, "maximum size of a request body in MiB",
             Range<int>{.lowest = 1, .highest = 4096});
  add_number(*command, "--max-request-items", flags->max_request_items,
             "maximum number of list elements in one field of a request, such as messages; numbers do not "
             "count",
             Range<size_t>{.lowest = 1});
  add_number(*command, "--max-stored-responses", flags->max_stored_responses,
             "responses of /v1/responses that are kept for previous_response_id; 0: none",
             Range<int>{.lowest = 0});
  add_number(*command, "--max-stored-responses-mb", flags->max_stored_responses_mb,
             "maximum size of the stored responses in MiB", Range<int>{.lowest = 1, .highest = 1 << 20});
  add_number(*command, "--drain-timeout", flags->drain_timeout,
             "seconds for active requests to finish after SIGTERM",
             Range<double>{.lowest = 0, .highest = 86400});
  set_group(*command, "Answers");
  add_text(
      *command, "--tool-call-parser", flags->tool_call_parser,
      "format of the model's tool calls, as named in SGLang and vLLM: qwen25, llama3, glm45, ...; default: "
      "the format that its chat template renders");
  add_text(*command, "--reasoning-parser", flags->reasoning_parser,
           "format of reasoning_content, as named in SGLang and vLLM: qwen3, gpt-oss, mistral, ...; none: it "
           "stays "
           "text; default: from the chat template");
  add_grammar_library_options(*command, flags->grammar);
  command->add_flag("--incremental-streaming-output", flags->incremental_streaming_output,
                    "events of /generate contain new output only, not all output so far");
  set_group(*command, "Model");
  command->add_flag("--is-embedding", flags->is_embedding,
                    "serve embeddings (/v1/embeddings) of a model that could also generate");
  command->add_flag("--is-reranker", flags->is_reranker,
                    "serve scores (/v1/rerank) of a language model that answers yes or no: Qwen3-Reranker");
  set_group(*command, "Logs and metrics");
  add_text(*command, "--metric-names", flags->metric_names, "metric names of /metrics: sglang, vllm or both");
  command->add_flag("--log-requests", flags->log_requests,
                    "log a line of JSON per finished generation: id, status, tokens, times");
  command->add_flag("--log-access", flags->log_access,
                    "log a line of JSON per finished HTTP request: path, status, bytes");
  set_usual_flags(*command, {"--model-path", "--host", "--port", "--api-key", "--served-model-name",
                             "--context-length", "--max-running-requests", "--device", "--threads"});
  command->callback(
      [command, flags, &selected] { selected = [command, flags] { return run_serve(*command, *flags); }; });
}

}  // namespace attend::cli
