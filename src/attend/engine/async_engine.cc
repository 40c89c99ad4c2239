#include "attend/engine/async_engine.h"

#include <pthread.h>

#include <atomic>
#include <climits>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/engine/metrics_recorder.h"
#include "attend/exec/step_trace.h"

namespace attend {

struct AsyncEngine::Impl {
  // Command from a caller to the engine's thread.
  enum class CommandKind : uint8_t { kSubmit, kAbortAll, kFlushCache };
  struct Command {
    CommandKind kind;
    RequestId id = 0;  // of kSubmit
    // Result of prepare(): one request with num_completions completions, or one request per completion.
    std::vector<std::unique_ptr<Request>> requests = {};
    OutputCallback callback = {};
    int num_completions = 0;
  };

  struct LiveRequest {
    OutputCallback callback;                      // null: it has thrown
    std::vector<Clock::time_point> last_outputs;  // by completion index
    int num_left = 0;                             // number of completions without a last output
  };

  explicit Impl(const EngineConfig& config, const EngineProgress& progress);
  ~Impl();

  // Main function of the engine's thread.
  void run(const EngineConfig& config, const EngineProgress& progress);
  void post(Command command);  // thread-safe
  bool wait_for_work();
  void run_commands();
  void execute(Command& command);
  void abort(RequestId id) noexcept;  // thread-safe
  void enqueue(Command& command);
  void reject(Command& command, std::string_view message);
  void remove(std::unordered_map<RequestId, LiveRequest>::iterator request);
  void step();
  void on_output(const RequestOutput& output);
  void fail_callback(RequestId id, LiveRequest& request, std::string_view message);
  void abort_failed_callbacks();
  void abort_all();
  void end_outputs();
  std::optional<RequestId> submit(GenerationRequest request, OutputCallback callback, int max_waiting);
  std::optional<RequestId> submit(Command command, int max_waiting);
  bool on_engine_thread() const { return std::this_thread::get_id() == thread.get_id(); }

  // Used by the engine's thread only.
  std::unique_ptr<Engine> engine;  // other threads call only its thread-safe const functions
  OutputSink sink = [this](const RequestOutput& output) { on_output(output); };
  std::unordered_map<RequestId, LiveRequest> live;
  std::function<void()> after_outputs;
  bool has_outputs = false;          // since the last call of after_outputs
  bool step_is_counted = true;       // false from the start of a step to its first callback
  bool callback_has_failed = false;  // its request is aborted after the step
  std::vector<Command> commands;     // in execution
  std::set<RequestId> aborts;        // in execution
  int num_ended = 0;                 // since the last update of num_unfinished

  MetricsRecorder recorder;
  std::atomic<bool> paused = false;  // written under the mutex

  std::mutex mutex;
  std::condition_variable wake;     // wakes the engine's thread: a command, an abort, resume, stop
  std::condition_variable changed;  // wakes callers: ready, paused, or no request left
  std::vector<Command> pending_commands;
  // Each request is in `unfinished` until it ends or moves to `to_abort`. The move does not allocate memory:
  // a lack of memory may be the reason of the abort.
  std::set<RequestId> unfinished, to_abort;
  RequestId next_id = 1;
  int64_t num_requests = 0;
  int num_pending = 0;  // completions in commands that have not been executed
  int num_unfinished = 0;
  bool ready = false, stopping = false;
  bool busy = false;  // the engine's thread runs a step or commands
  std::exception_ptr start_error;

  std::thread thread;
};

AsyncEngine::Impl::Impl(const EngineConfig& config, const EngineProgress& progress) {
  thread = std::thread([&] { run(config, progress); });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ready || start_error; });
  if (!start_error) return;
  lock.unlock();
  thread.join();
  std::rethrow_exception(start_error);
}

AsyncEngine::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_one();
  thread.join();
}

void AsyncEngine::Impl::run(const EngineConfig& config, const EngineProgress& progress) {
  pthread_setname_np(pthread_self(), "attend-engine");  // the threads of its thread team inherit the name
  try {
    engine = std::make_unique<Engine>(config, progress);
    recorder.on_step(*engine);
  } catch (...) {
    const std::lock_guard lock(mutex);
    start_error = std::current_exception();
    changed.notify_all();
    return;
  }
  {
    const std::lock_guard lock(mutex);
    ready = true;
  }
  changed.notify_all();
  while (wait_for_work()) {
    run_commands();
    step();
    abort_failed_callbacks();
    recorder.on_step(*engine);
    end_outputs();
  }
  run_commands();
  abort_all();
  end_outputs();
  engine.reset();  // on the thread that constructed it
}

// Returns false if the engine's thread ends.
bool AsyncEngine::Impl::wait_for_work() {
  std::unique_lock lock(mutex);
  num_unfinished -= std::exchange(num_ended, 0);
  // A pause starts when no step is in flight.
  if (!stopping && paused && engine->in_flight()) return true;
  busy = false;
  if (num_unfinished == 0 || paused) changed.notify_all();
  wake.wait(lock, [&] {
    return stopping || !pending_commands.empty() || !to_abort.empty() || (num_unfinished > 0 && !paused);
  });
  busy = true;
  std::swap(pending_commands, commands);
  std::swap(to_abort, aborts);
  return !stopping;
}

void AsyncEngine::Impl::run_commands() {
  if (commands.empty() && aborts.empty()) return;
  int num_executed = 0;
  for (Command& command : commands) {
    num_executed += command.num_completions;
    try {
      execute(command);
    } catch (const std::exception& error) {
      try_log_warning("engine command failed: ", error.what());
    }
  }
  commands.clear();
  // Aborts follow the commands, since one of these may have submitted the request.
  for (const RequestId id : aborts) engine->abort(id, sink);
  aborts.clear();
  // Both counts change under one lock, so that num_waiting() includes each waiting request.
  {
    const std::lock_guard lock(mutex);
    recorder.on_step(*engine);
    num_pending -= num_executed;
  }
  end_outputs();
}

void AsyncEngine::Impl::execute(Command& command) {
  switch (command.kind) {
    case CommandKind::kSubmit:
      try {
        enqueue(command);
      } catch (const std::exception& error) {
        reject(command, error.what());
      }
      break;
    case CommandKind::kAbortAll:
      abort_all();
      break;
    case CommandKind::kFlushCache:
      engine->flush_cache();
      break;
  }
}

void AsyncEngine::Impl::end_outputs() {
  if (std::exchange(has_outputs, false) && after_outputs) after_outputs();
}

void AsyncEngine::Impl::enqueue(Command& command) {
  LiveRequest& request = live[command.id];
  request.last_outputs.resize(static_cast<size_t>(command.num_completions));
  request.num_left = command.num_completions;
  request.callback.swap(command.callback);
  if (command.requests.size() == 1)
    engine->enqueue(std::move(command.requests.front()), command.id);
  else
    engine->enqueue(std::move(command.requests), command.id);
}

// Ends a request for which enqueue() ran out of memory.
void AsyncEngine::Impl::reject(Command& command, std::string_view message) {
  if (const auto found = live.find(command.id); found != live.end()) {
    if (found->second.callback) command.callback.swap(found->second.callback);
    live.erase(found);
  }
  {
    const std::lock_guard lock(mutex);
    unfinished.erase(command.id);
  }
  Request request;
  request.finish_reason = FinishReason::kError;
  has_outputs = true;
  for (int i = 0; i < command.num_completions; ++i) {
    try {
      command.callback({.id = command.id,
                        .index = i,
                        .token_ids = {},
                        .text = {},
                        .finish_reason = FinishReason::kError,
                        .matched_token = {},
                        .matched_stop = {},
                        .message = message,
                        .logprobs = {},
                        .prompt_logprobs = {},
                        .time = Clock::now(),
                        .request = request});
    } catch (...) {
      try_log_warning("request ", command.id, ": the callback of its last output threw an exception");
    }
    recorder.on_end(FinishReason::kError);
    ++num_ended;
  }
}

void AsyncEngine::Impl::step() {
  try {
    step_is_counted = false;
    if (paused)
      engine->finish_in_flight(sink);
    else
      engine->step(sink);
  } catch (const std::exception& error) {
    try_log_warning("step failed, aborting all requests: ", error.what());
    abort_all();
  }
  step_is_counted = true;
}

void AsyncEngine::Impl::on_output(const RequestOutput& output) {
  const auto found = live.find(output.id);
  LiveRequest& request = found->second;
  has_outputs = true;
  if (!std::exchange(step_is_counted, true)) recorder.on_step(*engine);
  recorder.on_output(output,
                     std::exchange(request.last_outputs[static_cast<size_t>(output.index)], output.time));
  if (request.callback) {
    try {
      request.callback(output);
    } catch (const std::exception& error) {
      fail_callback(output.id, request, error.what());
    } catch (...) {
      fail_callback(output.id, request, "not a std::exception");
    }
  }
  if (!output.finished()) return;
  recorder.on_end(output.finish_reason);
  ++num_ended;
  if (--request.num_left == 0) remove(found);
}

void AsyncEngine::Impl::remove(std::unordered_map<RequestId, LiveRequest>::iterator request) {
  {
    const std::lock_guard lock(mutex);
    unfinished.erase(request->first);
  }
  live.erase(request);
}

void AsyncEngine::Impl::fail_callback(RequestId id, LiveRequest& request, std::string_view message) {
  request.callback = nullptr;
  callback_has_failed = true;
  try_log_warning("request ", id, ": aborted, its callback threw an exception: ", message);
}

void AsyncEngine::Impl::abort_failed_callbacks() {
  if (!std::exchange(callback_has_failed, false)) return;
  for (auto entry = live.begin(); entry != live.end();) {
    const auto& [id, request] = *entry++;  // abort() erases the entry of `live`
    if (!request.callback) engine->abort(id, sink);
  }
}

// Does not allocate memory: it may have run out.
void AsyncEngine::Impl::abort_all() {
  while (!live.empty()) {
    const auto first = live.begin();
    if (engine->abort(first->first, sink)) continue;
    num_ended += first->second.num_left;
    remove(first);
  }
}

AsyncEngine::AsyncEngine(const EngineConfig& config, const EngineProgress& progress)
    : impl_(std::make_unique<Impl>(config, progress)) {}

AsyncEngine::~AsyncEngine() = default;

RequestId AsyncEngine::submit(GenerationRequest request, OutputCallback callback) {
  return *impl_->submit(std::move(request), std::move(callback), INT_MAX);
}

RequestId AsyncEngine::submit(PoolingRequest request, OutputCallback callback) {
  Impl::Command command{.kind = Impl::CommandKind::kSubmit,
                        .requests = impl_->engine->prepare(std::move(request)),
                        .callback = std::move(callback)};
  command.num_completions = static_cast<int>(command.requests.size());
  return *impl_->submit(std::move(command), INT_MAX);
}

std::optional<RequestId> AsyncEngine::submit_unless_full(GenerationRequest request, OutputCallback callback,
                                                         int max_waiting) {
  require(max_waiting > 0, "submit_unless_full: max_waiting ", max_waiting, ": at least 1");
  return impl_->submit(std::move(request), std::move(callback), max_waiting);
}

std::optional<RequestId> AsyncEngine::Impl::submit(GenerationRequest request, OutputCallback callback,
                                                   int max_waiting) {
  const int n = request.params.n;
  Command command{.kind = CommandKind::kSubmit, .callback = std::move(callback), .num_completions = n};
  command.requests.push_back(engine->prepare(std::move(request)));
  return submit(std::move(command), max_waiting);
}

std::optional<RequestId> AsyncEngine::Impl::submit(Command command, int max_waiting) {
  require(command.callback != nullptr, "submit: the callback is empty");
  const int n = command.num_completions;
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex);
    if (stopping) fail(ErrorCode::kUnsupported, "submit: the engine is being destroyed");
    if (recorder.num_waiting() + num_pending >= max_waiting) return std::nullopt;
    id = command.id = next_id;
    const auto entry = unfinished.insert(unfinished.end(), id);
    try {
      pending_commands.push_back(std::move(command));
    } catch (...) {
      unfinished.erase(entry);
      throw;
    }
    next_id += n;
    num_unfinished += n;
    num_pending += n;
    num_requests += n;
  }
  wake.notify_one();
  return id;
}

void AsyncEngine::set_after_outputs(std::function<void()> after_outputs) {
  impl_->after_outputs = std::move(after_outputs);
}

void AsyncEngine::Impl::post(Command command) {
  {
    const std::lock_guard lock(mutex);
    pending_commands.push_back(std::move(command));
  }
  wake.notify_one();
}

void AsyncEngine::Impl::abort(RequestId id) noexcept {
  {
    const std::lock_guard lock(mutex);
    auto request = unfinished.extract(id);
    if (request.empty()) return;
    to_abort.insert(std::move(request));
  }
  wake.notify_one();
}

void AsyncEngine::abort(RequestId id) { impl_->abort(id); }
void AsyncEngine::abort_all() { impl_->post({.kind = Impl::CommandKind::kAbortAll}); }
void AsyncEngine::load_adapter(const AdapterPath& adapter) { impl_->engine->load_adapter(adapter); }
void AsyncEngine::unload_adapter(std::string_view name) { impl_->engine->unload_adapter(name); }
std::vector<AdapterPath> AsyncEngine::adapters() const { return impl_->engine->adapters(); }

void AsyncEngine::flush_cache() { impl_->post({.kind = Impl::CommandKind::kFlushCache}); }

void AsyncEngine::pause() {
  std::unique_lock lock(impl_->mutex);
  impl_->paused = true;
  if (impl_->on_engine_thread()) return;
  impl_->changed.wait(lock, [&] { return !impl_->busy || !impl_->paused; });
}

void AsyncEngine::resume() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->paused = false;
  }
  impl_->wake.notify_one();
}

bool AsyncEngine::drain(std::chrono::milliseconds timeout) {
  require(!impl_->on_engine_thread(), "drain: called in a callback, would wait for itself");
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, timeout, [&] { return impl_->num_unfinished == 0; });
}

int AsyncEngine::num_waiting() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->recorder.num_waiting() + impl_->num_pending;
}

EngineMetrics AsyncEngine::metrics() const {
  EngineMetrics metrics;
  const std::lock_guard lock(impl_->mutex);
  impl_->recorder.read(metrics);
  metrics.num_waiting += impl_->num_pending;
  metrics.num_requests = impl_->num_requests;
  metrics.paused = impl_->paused;
  return metrics;
}

void AsyncEngine::start_trace(int64_t num_steps) { impl_->engine->trace().start(num_steps); }
std::string AsyncEngine::stop_trace() { return impl_->engine->trace().stop(); }

const EngineInfo& AsyncEngine::info() const { return impl_->engine->info(); }
const ModelSpec& AsyncEngine::model_spec() const { return impl_->engine->model_spec(); }
const Tokenizer* AsyncEngine::tokenizer() const { return impl_->engine->tokenizer(); }
std::string AsyncEngine::failure() const { return impl_->engine->failure(); }
void AsyncEngine::check_weights() const { impl_->engine->check_weights(); }

}  // namespace attend
