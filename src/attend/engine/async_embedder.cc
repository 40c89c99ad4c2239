#include "attend/engine/async_embedder.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "attend/base/log.h"
#include "attend/engine/metrics_recorder.h"

namespace attend {

struct AsyncEmbedder::Impl {
  struct Job {
    uint64_t id = 0;
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::vector<float>> vectors;
    size_t num_taken = 0, num_done = 0;  // of the inputs
    int64_t num_tokens = 0;
    EmbeddingCallback callback;
    Clock::time_point submitted = Clock::now(), started = {};
  };
  using JobPointer = std::shared_ptr<Job>;
  // Inputs of several jobs that are computed together.
  struct Step {
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::pair<JobPointer, size_t>> owners;  // and which of its inputs
  };

  Impl(const EmbedderConfig& config, const LoadProgress& progress) : embedder(config, progress) {
    thread = std::thread([this] { run(); });
  }

  void run();
  Step take_step();  // under the lock
  void compute(Step step);
  // Takes it out; null when it was cancelled.
  JobPointer end(uint64_t id);
  void tell(Job& job, EmbeddingResult result) const noexcept;
  void fail(Job& job, const EmbeddingResult& why) noexcept;
  void count();  // under the lock

  Embedder embedder;
  MetricsRecorder recorder;  // of the embedder's thread

  std::mutex mutex;
  std::condition_variable work;
  std::unordered_map<uint64_t, JobPointer> jobs;  // that wait or are computed
  std::deque<JobPointer> queue;                   // those with inputs that no step has taken
  WatchedNumber<int> num_waiting, num_running;    // written under the lock
  WatchedNumber<int64_t> num_requests;
  WatchedNumber<int64_t> num_cancelled;
  uint64_t num_ids = 0;
  bool stopping = false;
  std::thread thread;
};

AsyncEmbedder::Impl::Step AsyncEmbedder::Impl::take_step() {
  const EmbedderInfo& info = embedder.info();
  Step step;
  // So that nothing fails when the first input has been taken.
  step.inputs.reserve(static_cast<size_t>(info.max_step_inputs));
  step.owners.reserve(static_cast<size_t>(info.max_step_inputs));
  int64_t num_tokens = 0;
  const auto fits = [&](const std::vector<int32_t>& input) {
    return step.inputs.size() < static_cast<size_t>(info.max_step_inputs) &&
           num_tokens + std::ssize(input) <= info.max_step_tokens;
  };
  while (!queue.empty()) {
    const JobPointer job = queue.front();
    for (; job->num_taken < job->inputs.size() && fits(job->inputs[job->num_taken]); ++job->num_taken) {
      if (job->num_taken == 0) job->started = Clock::now();
      num_tokens += std::ssize(job->inputs[job->num_taken]);
      step.owners.emplace_back(job, job->num_taken);
      step.inputs.push_back(std::move(job->inputs[job->num_taken]));
    }
    if (job->num_taken < job->inputs.size()) break;
    queue.pop_front();
  }
  return step;
}

void AsyncEmbedder::Impl::count() {
  int waiting = 0;
  for (const JobPointer& job : queue) waiting += static_cast<int>(job->inputs.size() - job->num_taken);
  num_waiting.set(waiting);
}

void AsyncEmbedder::Impl::run() {
  while (true) {
    Step step;
    JobPointer first;
    {
      std::unique_lock lock(mutex);
      num_running.set(0);
      work.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) return;
      first = queue.front();
      try {
        step = take_step();
      } catch (const std::bad_alloc&) {
      }
      num_running.set(static_cast<int>(step.inputs.size()));
      count();
    }
    if (!step.inputs.empty())
      compute(std::move(step));
    else if (end(first->id))
      fail(*first, {.vectors = {}, .code = ErrorCode::kOutOfMemory, .message = {}});
  }
}

void AsyncEmbedder::Impl::compute(Step step) {
  std::vector<std::vector<float>> vectors;
  EmbeddingResult failure;
  try {
    try {
      vectors = embedder.embed(step.inputs);
    } catch (const Error& error) {
      failure = {.vectors = {}, .code = error.code(), .message = error.what()};
    } catch (const std::exception& error) {
      failure = {.vectors = {}, .code = ErrorCode::kInternal, .message = error.what()};
    }
  } catch (const std::bad_alloc&) {
    failure = {.vectors = {}, .code = ErrorCode::kOutOfMemory, .message = {}};
  }
  recorder.on_embedder_step(!vectors.empty());
  for (size_t i = 0; i < step.owners.size(); ++i) {
    const auto& [job, index] = step.owners[i];
    if (vectors.empty()) {
      if (const JobPointer failed = end(job->id)) fail(*failed, failure);
      continue;
    }
    job->vectors[index] = std::move(vectors[i]);
    if (++job->num_done < job->vectors.size() || !end(job->id)) continue;
    recorder.on_embedded(job->submitted, job->started, Clock::now(), job->num_tokens);
    tell(*job, {.vectors = std::move(job->vectors), .code = {}, .message = {}});
  }
}

AsyncEmbedder::Impl::JobPointer AsyncEmbedder::Impl::end(uint64_t id) {
  const std::lock_guard lock(mutex);
  const auto found = jobs.find(id);
  if (found == jobs.end()) return nullptr;
  JobPointer job = std::move(found->second);
  jobs.erase(found);
  std::erase(queue, job);
  count();
  return job;
}

void AsyncEmbedder::Impl::fail(Job& job, const EmbeddingResult& why) noexcept {
  recorder.on_end(FinishReason::kError);
  EmbeddingResult result{.vectors = {}, .code = why.code, .message = {}};
  try {
    result.message = why.message;
  } catch (const std::bad_alloc&) {  // then without words
  }
  tell(job, std::move(result));
}

void AsyncEmbedder::Impl::tell(Job& job, EmbeddingResult result) const noexcept {
  try {
    job.callback(std::move(result));
  } catch (const std::exception& error) {
    try_log_warning("a callback of an embedding threw: ", error.what());
  }
}

AsyncEmbedder::AsyncEmbedder(const EmbedderConfig& config, const LoadProgress& progress)
    : impl_(std::make_unique<Impl>(config, progress)) {}

AsyncEmbedder::~AsyncEmbedder() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->work.notify_one();
  impl_->thread.join();
  for (const auto& [id, job] : std::exchange(impl_->jobs, {}))
    impl_->tell(*job,
                {.vectors = {}, .code = ErrorCode::kUnsupported, .message = "the embedder is being ended"});
}

uint64_t AsyncEmbedder::submit(std::vector<std::vector<int32_t>> inputs, EmbeddingCallback callback) {
  require(!inputs.empty(), "no inputs: expected at least one");
  impl_->embedder.check(inputs);
  const auto job = std::make_shared<Impl::Job>();
  for (const std::vector<int32_t>& input : inputs) job->num_tokens += std::ssize(input);
  job->vectors.resize(inputs.size());
  job->inputs = std::move(inputs);
  job->callback = std::move(callback);
  {
    const std::lock_guard lock(impl_->mutex);
    job->id = ++impl_->num_ids;
    impl_->jobs.emplace(job->id, job);
    impl_->queue.push_back(job);
    impl_->num_requests.add(1);
    impl_->count();
  }
  impl_->work.notify_one();
  return job->id;
}

void AsyncEmbedder::cancel(uint64_t id) {
  if (impl_->end(id)) {
    const std::lock_guard lock(impl_->mutex);
    impl_->num_cancelled.add(1);
  }
}

EngineMetrics AsyncEmbedder::metrics() const {
  EngineMetrics metrics;
  impl_->recorder.read(metrics);
  metrics.num_running = impl_->num_running.get();
  metrics.num_waiting = impl_->num_waiting.get();
  metrics.num_requests = impl_->num_requests.get();
  metrics.num_finished[static_cast<size_t>(FinishReason::kAbort)] = impl_->num_cancelled.get();
  return metrics;
}

const EmbedderInfo& AsyncEmbedder::info() const { return impl_->embedder.info(); }
const Tokenizer* AsyncEmbedder::tokenizer() const { return impl_->embedder.tokenizer(); }

}  // namespace attend
