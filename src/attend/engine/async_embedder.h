// AsyncEmbedder: a pooling engine on its own thread, for callers on any thread. Inputs of different calls are
// computed in the same step. A server's /v1/embeddings calls it.
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

// Vectors of the inputs of one request, or an error.
struct EmbeddingResult {
  std::vector<std::vector<float>> vectors;  // [inputs][dimensions]; empty: failed with `code` and `message`
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// Called once on the embedder's thread, which waits for its return.
using EmbeddingCallback = std::function<void(EmbeddingResult)>;

// All functions are thread-safe, except that the constructor and the destructor exclude the others.
class AsyncEmbedder {
 public:
  // Throws what Embedder's constructor throws.
  explicit AsyncEmbedder(const EmbedderConfig& config, const LoadProgress& progress = {});
  // Ends the remaining requests with kUnsupported.
  ~AsyncEmbedder();

  // Checks on the calling thread, throws what Embedder::check throws, then queues. Inputs are computed in the
  // order of the calls; each step computes the number of inputs that fits, from one or several calls.
  // `token_types`: PoolingRequest::token_types.
  uint64_t submit(std::vector<std::vector<int32_t>> inputs, EmbeddingCallback callback,
                  std::vector<std::vector<int32_t>> token_types = {});
  // Cancels a request: its callback is not called any more, unless it is running already. The results of
  // inputs in the current step are dropped. Unknown ids are ignored: a request may end at any time.
  void cancel(uint64_t id);

  // num_waiting and num_running count inputs, the other values requests.
  EngineMetrics metrics() const;
  const EmbedderInfo& info() const;
  // Null if the model directory has no tokenizer.json. Thread-safe.
  const Tokenizer* tokenizer() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
