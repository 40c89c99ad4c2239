// Endpoints that pause a running server, change its weights, and release its memory for a while: those of
// SGLang, and vLLM's /sleep and /wake_up.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attend/engine/async_engine.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

// Weights that the server uses now. Thread-safe.
class ServedWeights {
 public:
  struct Source {
    std::filesystem::path path;
    std::string version = "default";  // chosen by the client that updates the weights
  };
  explicit ServedWeights(std::filesystem::path path) : source_{.path = std::move(path)} {}

  Source get() const {
    const std::lock_guard lock(mutex_);
    return source_;
  }
  void set(Source source) {
    const std::lock_guard lock(mutex_);
    source_ = std::move(source);
  }

 private:
  mutable std::mutex mutex_;
  Source source_;
};

// Sends a reply; may be called from any thread, once.
using SendJson = std::function<void(int status, std::string json)>;

// Read the fields of a request and start the operation; the reply is sent when it has ended. Throw ApiError
// for invalid fields. Unknown fields are appended to `ignored`. `served` outlives the engine.
void update_weights(const Json& body, AsyncEngine& engine, ServedWeights& served,
                    std::vector<std::string>& ignored, const SendJson& send);
void pause_generation(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                      const SendJson& send);
void release_memory(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                    const SendJson& send);
void resume_memory(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                   const SendJson& send);
// vLLM's, with the parameters of the URL.
void sleep(std::string_view query, AsyncEngine& engine, const SendJson& send);
void wake_up(std::string_view query, AsyncEngine& engine, const SendJson& send);

}  // namespace attend::serve
