// AsyncEngine: an engine on a thread of its own, for callers on any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "attend/engine/engine.h"
#include "attend/engine/engine_metrics.h"
#include "attend/engine/generation_request.h"
#include "attend/engine/output/request_output.h"

#pragma GCC visibility push(default)
namespace attend {

// Called on the engine's thread, once for each output of its request; see RequestOutput. The engine waits
// while it runs. It may call submit, abort, pause, resume, metrics and what is const. If it throws, its
// request is aborted and hears nothing more; others do not notice. It is destroyed after the last output.
using OutputCallback = std::function<void(const RequestOutput&)>;

// All functions may be called from any thread, except that the constructor and the destructor exclude the
// others.
class AsyncEngine {
 public:
  // Makes the engine on its thread and waits until it is ready; `progress` is called there. Throws what
  // Engine's constructor throws.
  explicit AsyncEngine(const EngineConfig& config, const EngineProgress& progress = {});
  // Aborts what is left, with its last outputs, and ends the thread. Not inside of a callback.
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  // Checks and encodes on the calling thread, throwing what Engine::submit throws, then queues. The first
  // output may come before this returns. Refused, with Error(kUnsupported), while the engine is destroyed.
  RequestId submit(GenerationRequest request, OutputCallback callback);
  RequestId submit(PoolingRequest request, OutputCallback callback);
  // As submit(), unless `max_waiting` completions wait already, as num_waiting() has it: then the request is
  // dropped, and there is no id. However many threads call this at once, none passes who should not.
  std::optional<RequestId> submit_unless_full(GenerationRequest request, OutputCallback callback,
                                              int max_waiting);

  // Called on the engine's thread, behind the callbacks of each step that had any, and behind those of
  // aborts: whoever collects outputs hands them on there. It does not throw. Set before the first submit.
  void set_after_outputs(std::function<void()> after_outputs);

  // Ends a request, wherever it is: waiting, in the middle of its prompt, running. Its last output has
  // FinishReason::kAbort, unless it finished before the engine heard of it. Unknown ids are ignored: a
  // request may finish at any time. Takes no memory.
  void abort(RequestId id);
  void abort_all();  // that were submitted before

  // Forgets all cached prefixes that no request uses by then. Whoever submits afterward does not meet them.
  void flush_cache();

  // No step runs from when this returns (called by a callback: after the step in hand) until resume().
  // Requests keep their pages; aborts are answered meanwhile. Pauses do not add up.
  void pause();
  void resume();

  // Waits until no request is left, or the time is over; returns whether none is left. Others may go on to
  // submit. Not inside of a callback.
  bool drain(std::chrono::milliseconds timeout);

  // Records where the time of the next steps goes, for `num_steps` of them; 0: until stop_trace(), or until a
  // million spans. stop_trace() gives the trace as JSON, for chrome://tracing and Perfetto.
  // Error(kUnsupported) where one is recorded already, or none.
  void start_trace(int64_t num_steps = 0);
  std::string stop_trace();

  // Takes no lock that a step takes.
  EngineMetrics metrics() const;
  int num_waiting() const;  // as metrics() has it

  const EngineInfo& info() const;
  const ModelSpec& model_spec() const;
  // Null when the model directory has no tokenizer.json. May be used from several threads at once.
  const Tokenizer* tokenizer() const;
  // As Engine::check_weights.
  void check_weights() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
