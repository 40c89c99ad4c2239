// AsyncEngine: an engine on its own thread, for callers on any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/engine/engine_control.h"
#include "attend/engine/engine_metrics.h"
#include "attend/engine/generation_request.h"
#include "attend/engine/output/request_output.h"

#pragma GCC visibility push(default)
namespace attend {

// Called on the engine's thread, once for each output of its request; see RequestOutput. The engine waits for
// its return. It may call submit, abort, pause, resume, metrics and const functions. If it throws, its
// request is aborted without further outputs, and other requests continue. It is destroyed after the last
// output.
using OutputCallback = std::function<void(const RequestOutput&)>;

// All functions are thread-safe, except that the constructor and the destructor exclude the others.
class AsyncEngine {
 public:
  // Constructs the engine on its thread and waits until it is ready; `progress` is called on that thread.
  // Throws what Engine's constructor throws.
  explicit AsyncEngine(const EngineConfig& config, const EngineProgress& progress = {});
  // Aborts the remaining requests, with their last outputs, and ends the thread. Not allowed in a callback.
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  // Checks and encodes on the calling thread, throws what Engine::submit throws, then queues. The first
  // output may arrive before submit() returns. Throws Error(kUnsupported) during the destructor.
  RequestId submit(GenerationRequest request, OutputCallback callback);
  RequestId submit(PoolingRequest request, OutputCallback callback);
  // Like submit(), but if the number of waiting completions, num_waiting(), is at least `max_waiting`, the
  // request is dropped and no id is returned. The limit holds for concurrent calls too.
  std::optional<RequestId> submit_unless_full(GenerationRequest request, OutputCallback callback,
                                              int max_waiting);

  // Sets a function for the engine's thread, called after the callbacks of each step with outputs, and after
  // those of aborts: a caller that collects outputs delivers them there. It must not throw. Set it before the
  // first submit.
  void set_after_outputs(std::function<void()> after_outputs);

  // Ends a request that waits or runs, also in the middle of its prompt. Its last output has
  // FinishReason::kAbort, unless it finishes before the engine receives the abort. Unknown ids are ignored,
  // since a request may finish at any time. Does not allocate memory.
  void abort(RequestId id);
  // Aborts all requests that were submitted before.
  void abort_all();

  // As Engine's.
  void load_adapter(const AdapterPath& adapter);
  void unload_adapter(std::string_view name);
  std::vector<AdapterPath> adapters() const;

  // Evicts all cached prefixes that no request uses. Requests that are submitted later do not reuse them.
  void flush_cache();

  // Suspends steps until resume(). When it returns, no step runs; if a callback calls it, the current step
  // still finishes. Requests keep their pages, and aborts are still processed. One resume() ends any number
  // of pauses.
  void pause();
  // The same without waiting; `done` is called when no step runs.
  void pause(PauseMode mode, ControlCallback done);
  void resume();

  // As Engine's, on the engine's thread. Requests that run finish first, or stay paused; those that are
  // submitted meanwhile wait. Several calls take effect one after the other.
  void update_weights(WeightUpdate update, ControlCallback done);
  // From the call of release_memory() until allocate_memory() has allocated all parts, submit() throws
  // UnavailableError.
  void release_memory(MemoryParts parts, ControlCallback done);
  void allocate_memory(MemoryParts parts, ControlCallback done);
  MemoryParts released_memory() const;

  // Waits until no request is left or the timeout expires; returns true if none is left. Other threads may
  // submit meanwhile. Not allowed in a callback.
  bool drain(std::chrono::milliseconds timeout);

  // Records time spans of the next `num_steps` steps; 0: until stop_trace(), or up to a million spans.
  // stop_trace() returns the trace as JSON for chrome://tracing and Perfetto. Throws Error(kUnsupported) if a
  // trace is being recorded already, or none is.
  void start_trace(int64_t num_steps = 0);
  std::string stop_trace();

  // Returns a snapshot. Does not take a lock that is held during a step.
  EngineMetrics metrics() const;
  int num_waiting() const;  // EngineMetrics::num_waiting

  const EngineInfo& info() const;
  const ModelSpec& model_spec() const;
  // Null if the model directory has no tokenizer.json. Thread-safe.
  const Tokenizer* tokenizer() const;
  // As Engine::failure.
  std::string failure() const;
  // As Engine::check_weights.
  void check_weights() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
