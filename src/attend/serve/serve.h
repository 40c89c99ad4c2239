// HTTP server of an engine or an embedder.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "attend/engine/engine_config.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/protocols/api.h"
#include "attend/serve/protocols/pooling/embedding_api.h"

namespace attend::serve {

struct ServeOptions {
  EngineConfig engine;
  EngineProgress progress;
  HttpOptions http;
  ApiOptions api;
  std::string chat_template;     // see ChatTemplate::find
  std::string tool_call_parser;  // see parse_tool_format; empty: see choose_tool_format
  std::string reasoning_parser;  // "none", or see parse_reasoning_format; empty: see choose_reasoning_format
  std::filesystem::path grammar_library_path;  // see GrammarLibrary::load
  GrammarLimits grammar_limits;
  std::chrono::milliseconds drain_timeout{30'000};  // time for active requests after SIGTERM
  // Called when the server is ready to accept requests.
  std::function<void(const std::string& address, const AsyncEngine& engine)> on_ready;
};

// Options of a server with an embedder.
struct ServeEmbeddingOptions {
  EmbedderConfig embedder;
  LoadProgress progress;
  HttpOptions http;
  ApiOptions api;
  std::chrono::milliseconds drain_timeout{30'000};
  std::function<void(const std::string& address, const AsyncEmbedder& embedder)> on_ready;
};

// Listens, loads the model, and serves requests until SIGTERM or SIGINT. Then active requests may finish and
// new ones are rejected with 503; a second signal aborts immediately. Throws Error for an unsupported
// configuration; addresses and templates are checked before weights are loaded.
void serve(const ServeOptions& options);
void serve_embeddings(const ServeEmbeddingOptions& options);

}  // namespace attend::serve
