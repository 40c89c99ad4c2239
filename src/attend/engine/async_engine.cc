#include "attend/engine/async_engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <list>
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
  enum class CommandKind : uint8_t { kSubmit, kFlushCache };
  struct Command {
    CommandKind kind;
    RequestId id = 0;  // of kSubmit
    // Result of prepare(): one request with num_completions completions, or one request per completion.
    std::vector<std::unique_ptr<Request>> requests = {};
    OutputCallback callback = {};
    int num_completions = 0;
    int64_t position = 0;  // number of commands that were posted before
  };

  // Change of the engine between steps. A pause takes effect at once; others wait until no request runs, or
  // all are paused. Commands that are posted later wait for the first control.
  struct Control {
    int64_t position = 0;  // as in Command
    bool pauses = false;
    bool aborts = false;  // all requests that were submitted before
    MemoryParts releases = {};
    std::function<void(Engine&)> apply;
    ControlCallback done;
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
  void post(Control control);  // thread-safe
  bool wait_for_work();
  void run_commands();
  void run_controls();
  void run_control(std::list<Control>::iterator control);
  void fail_controls();
  bool may_run_control() const { return !controls.empty() && (live.empty() || suspended()); }
  // Aborts a request that no command has passed to the engine yet.
  void abort_pending(RequestId id);
  // Position at which commands wait. Requires the mutex.
  int64_t end_of_commands() const {
    if (stopping || (controls.empty() && pending_controls.empty())) return INT64_MAX;
    return (controls.empty() ? pending_controls : controls).front().position;
  }
  void take_commands();
  // No step may run.
  bool suspended() const { return paused || engine->released_memory().any(); }
  void execute(Command& command);
  void abort(RequestId id) noexcept;  // thread-safe
  void enqueue(Command& command);
  void reject(Command& command, FinishReason reason, std::string_view message);
  void remove(std::unordered_map<RequestId, LiveRequest>::iterator request);
  void step();
  void run_step(const std::function<void()>& step);
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
  std::list<Control> controls;       // oldest first
  int num_ended = 0;                 // since the last update of num_unfinished

  MetricsRecorder recorder;
  std::atomic<bool> paused = false;  // written under the mutex

  std::mutex mutex;
  std::condition_variable wake;           // wakes the engine's thread: a command, an abort, resume, stop
  std::condition_variable changed;        // wakes callers: ready, paused, or no request left
  std::vector<Command> pending_commands;  // by position
  std::list<Control> pending_controls;
  MemoryParts released, releasing;  // of the engine; including those of controls that have not run
  // Each request is in `unfinished` until it ends or moves to `to_abort`. The move does not allocate memory:
  // a lack of memory may be the reason of the abort.
  std::set<RequestId> unfinished, to_abort;
  RequestId next_id = 1;
  int64_t num_requests = 0, num_posted = 0;  // num_posted: commands
  int num_pending = 0;                       // completions in commands that have not been executed
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
    run_controls();
    step();
    abort_failed_callbacks();
    recorder.on_step(*engine);
    end_outputs();
  }
  run_commands();
  abort_all();
  end_outputs();
  fail_controls();
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
    return stopping || (!pending_commands.empty() && pending_commands.front().position < end_of_commands()) ||
           !pending_controls.empty() || may_run_control() || !to_abort.empty() ||
           (num_unfinished > 0 && !suspended());
  });
  busy = true;
  take_commands();
  controls.splice(controls.end(), pending_controls);
  std::swap(to_abort, aborts);
  return !stopping;
}

// Without a control, and thus usually, it allocates no memory.
void AsyncEngine::Impl::take_commands() {
  const int64_t end = end_of_commands();
  if (pending_commands.empty() || pending_commands.back().position < end)
    return std::swap(pending_commands, commands);
  const auto later = std::ranges::lower_bound(pending_commands, end, {}, &Command::position);
  try {
    commands.reserve(static_cast<size_t>(later - pending_commands.begin()));
  } catch (const std::bad_alloc&) {
    return;  // the next call tries again
  }
  std::move(pending_commands.begin(), later, std::back_inserter(commands));
  pending_commands.erase(pending_commands.begin(), later);
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
  for (const RequestId id : aborts)
    if (!engine->abort(id, sink) && !controls.empty()) abort_pending(id);
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
        reject(command, FinishReason::kError, error.what());
      }
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

void AsyncEngine::Impl::abort_pending(RequestId id) {
  Command command{.kind = CommandKind::kSubmit};
  {
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find(pending_commands, id, &Command::id);
    if (found == pending_commands.end()) return;
    command = std::move(*found);
    pending_commands.erase(found);
    num_pending -= command.num_completions;
  }
  reject(command, FinishReason::kAbort, "aborted");
}

void AsyncEngine::Impl::run_controls() {
  for (auto control = controls.begin(); control != controls.end();) {
    const auto next = std::next(control);
    if (control->pauses) run_control(control);
    control = next;
  }
  // The commands between two controls are executed before the second one.
  if (may_run_control()) run_control(controls.begin());
}

void AsyncEngine::Impl::run_control(std::list<Control>::iterator control) {
  std::list<Control> own;  // removed first: `done` may call functions of this object
  own.splice(own.begin(), controls, control);
  ControlResult result{.error = nullptr, .num_paused = 0};
  run_step([&] { engine->finish_in_flight(sink); });
  try {
    own.front().apply(*engine);
  } catch (...) {
    result.error = std::current_exception();
  }
  result.num_paused = paused ? static_cast<int>(live.size()) : 0;
  recorder.on_step(*engine);
  {
    const std::lock_guard lock(mutex);
    released = engine->released_memory();
    if (pending_controls.empty() && controls.empty()) releasing = released;
  }
  end_outputs();
  if (own.front().done) own.front().done(result);
}

void AsyncEngine::Impl::fail_controls() {
  {
    const std::lock_guard lock(mutex);
    controls.splice(controls.end(), pending_controls);
  }
  const ControlResult result{
      .error = std::make_exception_ptr(Error(ErrorCode::kUnsupported, "the engine is being destroyed")),
      .num_paused = 0};
  for (const Control& control : controls)
    if (control.done) control.done(result);
  controls.clear();
}

// Ends a request that the engine has not received.
void AsyncEngine::Impl::reject(Command& command, FinishReason reason, std::string_view message) {
  if (const auto found = live.find(command.id); found != live.end()) {
    if (found->second.callback) command.callback.swap(found->second.callback);
    live.erase(found);
  }
  {
    const std::lock_guard lock(mutex);
    unfinished.erase(command.id);
  }
  Request request;
  request.finish_reason = reason;
  has_outputs = true;
  for (int i = 0; i < command.num_completions; ++i) {
    try {
      command.callback({.id = command.id,
                        .index = i,
                        .token_ids = {},
                        .text = {},
                        .finish_reason = reason,
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
    recorder.on_end(reason);
    ++num_ended;
  }
}

void AsyncEngine::Impl::step() {
  run_step([&] {
    if (suspended())
      engine->finish_in_flight(sink);
    else
      engine->step(sink);
  });
}

void AsyncEngine::Impl::run_step(const std::function<void()>& step) {
  try {
    step_is_counted = false;
    step();
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
    if (releasing.any())
      throw UnavailableError("the engine sleeps: its memory is released, and must be resumed first");
    if (recorder.num_waiting() + num_pending >= max_waiting) return std::nullopt;
    id = command.id = next_id;
    const auto entry = unfinished.insert(unfinished.end(), id);
    command.position = num_posted;
    try {
      pending_commands.push_back(std::move(command));
    } catch (...) {
      unfinished.erase(entry);
      throw;
    }
    ++num_posted;
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
    command.position = num_posted;
    pending_commands.push_back(std::move(command));
    ++num_posted;
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
void AsyncEngine::abort_all() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->to_abort.merge(impl_->unfinished);
  }
  impl_->wake.notify_one();
}
void AsyncEngine::load_adapter(const AdapterPath& adapter) { impl_->engine->load_adapter(adapter); }
void AsyncEngine::unload_adapter(std::string_view name) { impl_->engine->unload_adapter(name); }
std::vector<AdapterPath> AsyncEngine::adapters() const { return impl_->engine->adapters(); }

void AsyncEngine::flush_cache() { impl_->post(Impl::Command{.kind = Impl::CommandKind::kFlushCache}); }

void AsyncEngine::Impl::post(Control control) {
  std::list<Control> posted;
  posted.push_back(std::move(control));
  {
    const std::lock_guard lock(mutex);
    if (stopping) fail(ErrorCode::kUnsupported, "the engine is being destroyed");
    posted.front().position = num_posted;
    if (posted.front().aborts) to_abort.merge(unfinished);
    // From now on submit() throws, so that no request waits until allocate_memory().
    releasing = releasing | posted.front().releases;
    pending_controls.splice(pending_controls.end(), posted);
  }
  wake.notify_one();
}

void AsyncEngine::pause(PauseMode mode, ControlCallback done) {
  Impl* const impl = impl_.get();
  impl->post(Impl::Control{.pauses = true,
                           .aborts = mode == PauseMode::kAbort,
                           .apply =
                               [impl, mode](Engine& engine) {
                                 {
                                   const std::lock_guard lock(impl->mutex);
                                   impl->paused = true;
                                 }
                                 if (mode == PauseMode::kRetract) engine.preempt_all();
                               },
                           .done = std::move(done)});
}

void AsyncEngine::update_weights(WeightUpdate update, ControlCallback done) {
  const bool aborts = update.abort_requests;
  impl_->post(Impl::Control{
      .aborts = aborts,
      .apply = [update = std::move(update)](
                   Engine& engine) { engine.update_weights(update.model_path, update.flush_cache); },
      .done = std::move(done)});
}

void AsyncEngine::release_memory(MemoryParts parts, ControlCallback done) {
  require(parts.any(), "release_memory: no parts; expected weights, kv_cache or both");
  impl_->post(Impl::Control{.releases = parts,
                            .apply = [parts](Engine& engine) { engine.release_memory(parts); },
                            .done = std::move(done)});
}

void AsyncEngine::allocate_memory(MemoryParts parts, ControlCallback done) {
  impl_->post(Impl::Control{.apply = [parts](Engine& engine) { engine.allocate_memory(parts); },
                            .done = std::move(done)});
}

MemoryParts AsyncEngine::released_memory() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->released;
}

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
