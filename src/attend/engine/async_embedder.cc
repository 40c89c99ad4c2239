#include "attend/engine/async_embedder.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "attend/base/log.h"
#include "attend/engine/async_engine.h"
#include "attend/engine/metrics_recorder.h"
#include "attend/engine/resolve/resolve_embedder.h"

namespace attend {

struct AsyncEmbedder::Impl {
  // Inputs of one call of submit().
  struct Job {
    uint64_t id = 0;
    RequestId request = 0;  // id in the engine
    EmbeddingResult result;
    bool failed = false;
    size_t num_left = 0;  // number of inputs without an output
    int64_t num_tokens = 0;
    EmbeddingCallback callback;
    Clock::time_point submitted = Clock::now(), started = {};
  };

  Impl(ResolvedEmbedder resolved, const LoadProgress& progress)
      : info(std::move(resolved.info)),
        engine(resolved.engine, {.resolved = {}, .weights = progress, .graphs = {}}) {
    add_engine_info(engine.info(), info);
  }

  // Called on the engine's thread.
  void on_output(Job& job, const RequestOutput& output) noexcept;
  void handle_output(Job& job, const RequestOutput& output);
  void fail(Job& job, ErrorCode code, std::string_view message) noexcept;
  void notify(Job& job) noexcept;

  EmbedderInfo info;
  MetricsRecorder recorder;  // counts calls; written by the engine's thread
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Job>> jobs;  // waiting or running
  uint64_t num_ids = 0;
  // Written under the mutex.
  SingleWriterNumber<int64_t> num_requests, num_canceled;
  SingleWriterNumber<int> num_canceled_inputs;  // still in the engine
  AsyncEngine engine;  // last member: its thread ends before the others are destroyed
};

void AsyncEmbedder::Impl::handle_output(Job& job, const RequestOutput& output) {
  if (output.finish_reason == FinishReason::kStop) {
    job.started = std::max(job.started, output.request.times.admitted);
    job.result.vectors[static_cast<size_t>(output.index)].assign(output.vector.begin(), output.vector.end());
  } else if (output.finish_reason == FinishReason::kAbort) {
    fail(job, ErrorCode::kUnsupported, "the embedder is shutting down");
  } else {
    const bool out_of_memory = output.message == std::bad_alloc().what();
    fail(job, out_of_memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal, output.message);
  }
  // A checkpoint file that is overwritten in place changes the weights.
  if (job.num_left == 0 && !job.failed) engine.check_weights();
}

void AsyncEmbedder::Impl::on_output(Job& job, const RequestOutput& output) noexcept {
  --job.num_left;
  try {
    handle_output(job, output);
  } catch (const Error& error) {
    fail(job, error.code(), error.what());
  } catch (const std::exception&) {
    fail(job, ErrorCode::kOutOfMemory, {});
  }
  {
    const std::lock_guard lock(mutex);
    if (!jobs.contains(job.id)) return num_canceled_inputs.add(-1);
    if (job.num_left > 0) return;
    jobs.erase(job.id);
  }
  if (job.failed) {
    job.result.vectors.clear();
    recorder.on_end(FinishReason::kError);
  } else {
    recorder.on_embedded(job.submitted, job.started, Clock::now(), job.num_tokens);
  }
  notify(job);
}

// Keeps the first failure of a job.
void AsyncEmbedder::Impl::fail(Job& job, ErrorCode code, std::string_view message) noexcept {
  if (std::exchange(job.failed, true)) return;
  job.result.code = code;
  try {
    job.result.message = message;
  } catch (const std::bad_alloc&) {  // the error has no message then
  }
}

void AsyncEmbedder::Impl::notify(Job& job) noexcept {
  try {
    job.callback(std::move(job.result));
  } catch (const std::exception& error) {
    try_log_warning("the callback of an embedding request threw an exception: ", error.what());
  }
}

AsyncEmbedder::AsyncEmbedder(const EmbedderConfig& config, const LoadProgress& progress)
    : impl_(std::make_unique<Impl>(resolve_embedder(config), progress)) {}

AsyncEmbedder::~AsyncEmbedder() = default;

uint64_t AsyncEmbedder::submit(std::vector<std::vector<int32_t>> inputs, EmbeddingCallback callback,
                               std::vector<std::vector<int32_t>> token_types) {
  require(!inputs.empty(), "inputs: none; expected at least one");
  const auto job = std::make_shared<Impl::Job>();
  for (const std::vector<int32_t>& input : inputs) job->num_tokens += std::ssize(input);
  job->result.vectors.resize(inputs.size());
  job->num_left = inputs.size();
  job->callback = std::move(callback);
  PoolingRequest request;
  request.inputs.assign(std::make_move_iterator(inputs.begin()), std::make_move_iterator(inputs.end()));
  request.token_types = std::move(token_types);
  // The lock delays the first output until the job is complete.
  const std::lock_guard lock(impl_->mutex);
  job->id = ++impl_->num_ids;
  impl_->jobs.emplace(job->id, job);
  try {
    job->request = impl_->engine.submit(
        std::move(request),
        [impl = impl_.get(), job](const RequestOutput& output) { impl->on_output(*job, output); });
  } catch (...) {
    impl_->jobs.erase(job->id);
    throw;
  }
  impl_->num_requests.add(1);
  return job->id;
}

void AsyncEmbedder::cancel(uint64_t id) {
  RequestId request = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->jobs.find(id);
    if (found == impl_->jobs.end()) return;
    request = found->second->request;
    impl_->num_canceled_inputs.add(static_cast<int>(found->second->num_left));
    impl_->num_canceled.add(1);
    impl_->jobs.erase(found);
  }
  impl_->engine.abort(request);
}

EngineMetrics AsyncEmbedder::metrics() const {
  EngineMetrics metrics;
  impl_->recorder.read(metrics);
  const EngineMetrics engine = impl_->engine.metrics();
  metrics.num_running = engine.num_running;
  metrics.num_waiting = std::max(0, engine.num_waiting - impl_->num_canceled_inputs.get());
  metrics.num_steps = engine.num_steps;
  metrics.num_failed_steps = engine.num_failed_steps;
  metrics.num_requests = impl_->num_requests.get();
  metrics.num_finished[static_cast<size_t>(FinishReason::kAbort)] = impl_->num_canceled.get();
  return metrics;
}

const EmbedderInfo& AsyncEmbedder::info() const { return impl_->info; }
const Tokenizer* AsyncEmbedder::tokenizer() const { return impl_->engine.tokenizer(); }

}  // namespace attend
