#include "attend/serve/serve.h"

#include "attend/base/log.h"
#include "attend/serve/http/memory_reserve.h"

namespace attend::serve {
namespace {

// Lets what is in hand finish, and then ends the server.
class Drain {
 public:
  Drain(HttpServer& server, Service& api, std::chrono::milliseconds timeout)
      : server_(server), api_(api), timeout_(timeout) {}

  void on_signal() {
    if (started_) return server_.stop();
    started_ = true;
    deadline_ = Clock::now() + timeout_;
    api_.drain();
    try_log_info("shutting down: ", api_.num_in_hand(),
                 " requests in hand may finish; a second signal ends them");
    wait();
  }

 private:
  static constexpr std::chrono::milliseconds kPoll{20};
  static constexpr std::chrono::milliseconds kLastWords{200};

  void wait() noexcept try {
    if (api_.num_in_hand() > 0 && Clock::now() < deadline_) return server_.after(kPoll, [this] { wait(); });
    if (api_.num_in_hand() > 0)
      try_log_warning(api_.num_in_hand(), " requests did not finish in time and are aborted");
    api_.abort_all();
    server_.stop_accepting();
    server_.after(kLastWords, [this] { server_.stop(); });
  } catch (const std::exception&) {  // there is no memory to wait with
    server_.stop();
  }

  HttpServer& server_;
  Service& api_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  bool started_ = false;
};

// Answers until a signal has come and what was in hand has ended.
void run(HttpServer& server, Service& api, std::chrono::milliseconds drain_timeout,
         const std::function<void()>& on_ready) {
  Drain drain(server, api, drain_timeout);
  on_ready();
  server.run([&](HttpRequest request,
                 std::shared_ptr<Exchange> exchange) { api.handle(std::move(request), std::move(exchange)); },
             [&] { drain.on_signal(); });
}

// How the model writes calls and thoughts: as was said, or as its template has it.
ChatFormats choose_formats(const ServeOptions& options, const std::optional<ChatTemplate>& chat) {
  ChatFormats formats;
  if (!options.reasoning_parser.empty()) check_reasoning_parser(options.reasoning_parser);
  formats.reasoning = !options.reasoning_parser.empty();
  if (!options.tool_call_parser.empty())
    formats.tools = parse_tool_format(options.tool_call_parser);
  else if (chat)
    formats.tools = find_tool_format(chat->source());
  if (formats.tools)
    log_info("calls of tools are read as ", to_string(*formats.tools), " writes them",
             options.tool_call_parser.empty() ? ", by the chat template" : "");
  return formats;
}

}  // namespace

void serve(const ServeOptions& options) {
  const MemoryReserve reserve;
  HttpServer server(options.http);
  std::optional<ChatTemplate> chat = ChatTemplate::find(options.engine.model_path, options.chat_template);
  const ChatFormats formats = choose_formats(options, chat);
  const GrammarOptions grammars{.library = GrammarLibrary::load(options.grammar_library_path),
                                .limits = options.grammar_limits};
  auto engine = std::make_unique<AsyncEngine>(options.engine, options.progress);
  {
    Api api(*engine, std::move(chat), formats, grammars, options.api, server,
            [&] { return server.metrics(); });
    run(server, api, options.drain_timeout, [&] {
      if (options.on_ready) options.on_ready(server.address(), *engine);
    });
    // Its last outputs go to the API's outbox.
    engine.reset();
  }
}

void serve_embeddings(const ServeEmbeddingOptions& options) {
  const MemoryReserve reserve;
  HttpServer server(options.http);
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
