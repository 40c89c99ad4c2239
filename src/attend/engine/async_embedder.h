// AsyncEmbedder: an engine that pools on a thread of its own, for callers on any thread. What waits is
// computed together, whoever asked for it. What a server's /v1/embeddings calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/embedder.h"
#include "attend/engine/engine_metrics.h"

namespace attend {

// The vectors of one request's inputs, or why there are none.
struct EmbeddingResult {
  std::vector<std::vector<float>> vectors;  // [inputs][dimensions]; empty: `code` and `message` say why
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// Called once on the embedder's thread, which waits while it runs.
using EmbeddingCallback = std::function<void(EmbeddingResult)>;

// All functions may be called from any thread, except that the constructor and the destructor exclude the
// others.
class AsyncEmbedder {
 public:
  // Throws what Embedder's constructor throws.
  explicit AsyncEmbedder(const EmbedderConfig& config, const LoadProgress& progress = {});
  // What is left is told so, with kUnsupported.
  ~AsyncEmbedder();

  // Checks on the calling thread, throwing what Embedder::check throws, then queues. Inputs are computed in
  // the order of the calls, as many as fit a step, those of several calls in one.
  uint64_t submit(std::vector<std::vector<int32_t>> inputs, EmbeddingCallback callback);
  // Forgets a request, whose callback is not called any more unless it is being called. Inputs of it that are
  // in the step in hand are computed for nobody. Unknown ids are ignored: a request may end at any time.
  void cancel(uint64_t id);

  // Requests count by their inputs where they wait (num_waiting) or are computed (num_running).
  EngineMetrics metrics() const;
  const EmbedderInfo& info() const;
  // Null when the model directory has no tokenizer.json. May be used from several threads at once.
  const Tokenizer* tokenizer() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
