// The server as a whole: an engine, or an embedder, behind HTTP.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "attend/engine/engine_config.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/protocols/api.h"
#include "attend/serve/protocols/embedding_api.h"

namespace attend::serve {

struct ServeOptions {
  EngineConfig engine;
  EngineProgress progress;
  HttpOptions http;
  ApiOptions api;
  std::string chat_template;                   // see ChatTemplate::find
  std::string tool_call_parser;                // see parse_tool_format; empty: the chat template's
  std::string reasoning_parser;                // empty: thoughts are text
  std::filesystem::path grammar_library_path;  // see GrammarLibrary::load
  GrammarLimits grammar_limits;
  std::chrono::milliseconds drain_timeout{30'000};  // after SIGTERM, for what is being generated
  // Called when clients are about to be answered.
  std::function<void(const std::string& address, const AsyncEngine& engine)> on_ready;
};

// The same of an embedder.
struct ServeEmbeddingOptions {
  EmbedderConfig embedder;
  LoadProgress progress;
  HttpOptions http;
  ApiOptions api;
  std::chrono::milliseconds drain_timeout{30'000};
  std::function<void(const std::string& address, const AsyncEmbedder& embedder)> on_ready;
};

// Listens, loads the model, and answers until SIGTERM or SIGINT. Then requests in hand may finish, new ones
// get 503; a second signal ends at once. Throws Error for what can not be served, addresses and templates
// before weights are read.
void serve(const ServeOptions& options);
void serve_embeddings(const ServeEmbeddingOptions& options);

}  // namespace attend::serve
