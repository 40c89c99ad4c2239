#include "attend/serve/serve.h"

#include "attend/base/log.h"
#include "attend/serve/formats/choose_format.h"
#include "attend/serve/http/drain.h"
#include "attend/serve/http/memory.h"
#include "attend/serve/protocols/anthropic/errors.h"
#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

// Serves requests until a signal has arrived and active requests have ended.
void run(HttpServer& server, Service& api, std::chrono::milliseconds drain_timeout,
         const std::function<void()>& on_ready) {
  Drain drain(server, api, drain_timeout);
  server.defer_signals();
  on_ready();
  server.run([&](HttpRequest request,
                 std::shared_ptr<Exchange> exchange) { api.handle(std::move(request), std::move(exchange)); },
             [&] { drain.on_signal(); });
}

// Sets the errors of requests that the HTTP server rejects to the format of their API.
HttpOptions with_error_format(HttpOptions options) {
  options.make_error = [](int status, std::string_view message, std::string_view path) {
    ErrorResponse error = error_response(path, {status, std::string(message), {}, {}});
    return HttpError{error.status, std::move(error.body)};
  };
  options.error_paths = {std::string(kMessagesPath)};
  return options;
}

ChatFormats log_formats(const ModelFormats& chosen) {
  log_info(chosen.tools_line());
  if (chosen.tools.omits_tools)
    log_warning(
        "tools: the chat template does not render them, so that the model does not know them; expected "
        "another --chat-template");
  log_info(chosen.reasoning_line());
  ChatFormats formats;
  formats.tools = chosen.tools.format;
  if (!formats.tools) formats.tools_reason = chosen.tools.reason;
  formats.reasoning = chosen.reasoning.format;
  return formats;
}

}  // namespace

void serve(const ServeOptions& options) {
  const MemoryReserve reserve;
  HttpServer server(with_error_format(options.http));
  std::optional<ChatTemplate> chat = ChatTemplate::find(options.engine.model_path, options.chat_template);
  ModelFormats chosen = choose_formats(options.tool_call_parser, options.reasoning_parser, chat);
  const GrammarOptions grammars{.library = GrammarLibrary::load(options.grammar_library_path),
                                .limits = options.grammar_limits};
  auto engine = std::make_unique<AsyncEngine>(options.engine, options.progress);
  if (engine->tokenizer()) add_formats_by_vocabulary(options.reasoning_parser, *engine->tokenizer(), chosen);
  ChatFormats formats = log_formats(chosen);
  formats.grammars = grammars.library.available();
  formats.single_calls = chat && !chat->accepts_parallel_calls();
  if (chat) formats.thinking = ThinkingControls::find(*chat, formats.reasoning);
  if (formats.tools && engine->tokenizer())
    formats.marker_tokens = marker_tokens(*formats.tools, *engine->tokenizer());
  if (formats.reasoning && engine->tokenizer())
    formats.has_special_reasoning = has_special_tags(*formats.reasoning, *engine->tokenizer());
  {
    Api api(*engine, std::move(chat), formats, grammars, options.api, server,
            [&] { return server.metrics(); });
    run(server, api, options.drain_timeout, [&] {
      if (options.on_ready) options.on_ready(server.address(), *engine);
    });
    // Destroyed first, since it passes its last outputs to the API.
    engine.reset();
  }
}

void serve_embeddings(const ServeEmbeddingOptions& options) {
  const MemoryReserve reserve;
  HttpServer server(with_error_format(options.http));
  auto embedder = std::make_unique<AsyncEmbedder>(options.embedder, options.progress);
  {
    EmbeddingApi api(*embedder, options.api, server, [&] { return server.metrics(); });
    run(server, api, options.drain_timeout, [&] {
      if (options.on_ready) options.on_ready(server.address(), *embedder);
    });
    embedder.reset();
  }
}

}  // namespace attend::serve
