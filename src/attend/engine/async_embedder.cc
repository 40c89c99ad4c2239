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
  // The inputs of one call.
  struct Job {
    uint64_t id = 0;
    RequestId request = 0;  // of the engine
    EmbeddingResult result;
    bool failed = false;
    size_t num_left = 0;  // inputs without an output
    int64_t num_tokens = 0;
    EmbeddingCallback callback;
    Clock::time_point submitted = Clock::now(), started = {};
  };

  Impl(ResolvedEmbedder resolved, const LoadProgress& progress)
      : info(std::move(resolved.info)),
        engine(resolved.engine, {.resolved = {}, .weights = progress, .graphs = {}}) {
    add_engine_info(engine.info(), info);
  }

  // On the engine's thread.
  void on_output(Job& job, const RequestOutput& output) noexcept;
  void take(Job& job, const RequestOutput& output);
  void fail(Job& job, ErrorCode code, std::string_view message) noexcept;
  void notify(Job& job) noexcept;

  EmbedderInfo info;
  MetricsRecorder recorder;  // of the engine's thread: calls
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Job>> jobs;  // that wait or are computed
  uint64_t num_ids = 0;
  // Written under the lock.
  WatchedNumber<int64_t> num_requests, num_canceled;
  WatchedNumber<int> num_leaving;  // inputs of canceled jobs that the engine still counts
  AsyncEngine engine;              // ends first
};

void AsyncEmbedder::Impl::take(Job& job, const RequestOutput& output) {
  if (output.finish_reason == FinishReason::kStop) {
    job.started = std::max(job.started, output.request.times.admitted);
    job.result.vectors[static_cast<size_t>(output.index)].assign(output.vector.begin(), output.vector.end());
  } else if (output.finish_reason == FinishReason::kAbort) {
    fail(job, ErrorCode::kUnsupported, "the embedder is being ended");
  } else {
    const bool out_of_memory = output.message == std::bad_alloc().what();
    fail(job, out_of_memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal, output.message);
  }
  // Whoever writes to the files changes the model under it.
  if (job.num_left == 0 && !job.failed) engine.check_weights();
}

void AsyncEmbedder::Impl::on_output(Job& job, const RequestOutput& output) noexcept {
  --job.num_left;
  try {
    take(job, output);
  } catch (const Error& error) {
    fail(job, error.code(), error.what());
  } catch (const std::exception&) {
    fail(job, ErrorCode::kOutOfMemory, {});
  }
  {
    const std::lock_guard lock(mutex);
    if (!jobs.contains(job.id)) return num_leaving.add(-1);
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

// The first failure of a job counts.
void AsyncEmbedder::Impl::fail(Job& job, ErrorCode code, std::string_view message) noexcept {
  if (std::exchange(job.failed, true)) return;
  job.result.code = code;
  try {
    job.result.message = message;
  } catch (const std::bad_alloc&) {  // then without words
  }
}

void AsyncEmbedder::Impl::notify(Job& job) noexcept {
  try {
    job.callback(std::move(job.result));
  } catch (const std::exception& error) {
    try_log_warning("a callback of an embedding threw: ", error.what());
  }
}

AsyncEmbedder::AsyncEmbedder(const EmbedderConfig& config, const LoadProgress& progress)
    : impl_(std::make_unique<Impl>(resolve_embedder(config), progress)) {}

AsyncEmbedder::~AsyncEmbedder() = default;

uint64_t AsyncEmbedder::submit(std::vector<std::vector<int32_t>> inputs, EmbeddingCallback callback) {
  require(!inputs.empty(), "no inputs: expected at least one");
  const auto job = std::make_shared<Impl::Job>();
  for (const std::vector<int32_t>& input : inputs) job->num_tokens += std::ssize(input);
  job->result.vectors.resize(inputs.size());
  job->num_left = inputs.size();
  job->callback = std::move(callback);
  PoolingRequest request;
  request.inputs.assign(std::make_move_iterator(inputs.begin()), std::make_move_iterator(inputs.end()));
  // The first output waits for the lock, and then knows the job.
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
    impl_->num_leaving.add(static_cast<int>(found->second->num_left));
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
  metrics.num_waiting = std::max(0, engine.num_waiting - impl_->num_leaving.get());
  metrics.num_steps = engine.num_steps;
  metrics.num_failed_steps = engine.num_failed_steps;
  metrics.num_requests = impl_->num_requests.get();
  metrics.num_finished[static_cast<size_t>(FinishReason::kAbort)] = impl_->num_canceled.get();
  return metrics;
}

const EmbedderInfo& AsyncEmbedder::info() const { return impl_->info; }
const Tokenizer* AsyncEmbedder::tokenizer() const { return impl_->engine.tokenizer(); }

}  // namespace attend
