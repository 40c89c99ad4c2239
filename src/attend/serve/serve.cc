#include "attend/serve/serve.h"

#include "attend/base/log.h"
#include "attend/serve/formats/choose_format.h"
#include "attend/serve/http/drain.h"
#include "attend/serve/http/memory.h"
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
  return options;
}

// Name of the choice by the chat template, as in SGLang and vLLM.
constexpr std::string_view kAuto = "auto";

// Selects the formats of calls and reasoning from the options, otherwise from the chat template.
ChatFormats choose_formats(const ServeOptions& options, const std::optional<ChatTemplate>& chat) {
  ChatFormats formats;
  std::string tools_reason = "--tool-call-parser " + options.tool_call_parser;
  if (!options.tool_call_parser.empty() && options.tool_call_parser != kAuto) {
    formats.tools = &parse_tool_format(options.tool_call_parser);
  } else if (chat) {
    ToolChoiceByTemplate choice = choose_tool_format(*chat);
    formats.tools = choice.format;
    tools_reason = std::move(choice.reason);
  } else {
    tools_reason = "the model has no chat template";
  }
  if (!formats.tools) formats.tools_reason = tools_reason;
  log_info("tool calls: ", formats.tools ? formats.tools->name() : "none", " (", tools_reason, ")");
  std::string reasoning_reason = "--reasoning-parser " + options.reasoning_parser;
  if (!options.reasoning_parser.empty() && options.reasoning_parser != kAuto) {
    if (options.reasoning_parser != "none")
      formats.reasoning = &parse_reasoning_format(options.reasoning_parser);
  } else if (chat) {
    ReasoningChoiceByTemplate choice = choose_reasoning_format(*chat);
    formats.reasoning = choice.format;
    reasoning_reason = std::move(choice.reason);
  } else {
    reasoning_reason = "the model has no chat template";
  }
  log_info("reasoning: ", formats.reasoning ? formats.reasoning->name() : "part of the text", " (",
           reasoning_reason, ")");
  return formats;
}

}  // namespace

void serve(const ServeOptions& options) {
  const MemoryReserve reserve;
  HttpServer server(with_error_format(options.http));
  std::optional<ChatTemplate> chat = ChatTemplate::find(options.engine.model_path, options.chat_template);
  ChatFormats formats = choose_formats(options, chat);
  const GrammarOptions grammars{.library = GrammarLibrary::load(options.grammar_library_path),
                                .limits = options.grammar_limits};
  formats.grammars = grammars.library.available();
  auto engine = std::make_unique<AsyncEngine>(options.engine, options.progress);
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
