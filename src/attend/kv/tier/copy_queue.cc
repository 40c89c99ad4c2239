#include "attend/kv/tier/copy_queue.h"

#include <algorithm>
#include <random>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

// Enough to keep the link busy, and little enough that the driver does not block.
constexpr size_t kPartBytes = 16 << 20, kMaxQueuedParts = 3;

std::atomic<int64_t> max_delay_us{0};  // tests

}  // namespace

CacheTiles make_cache_tiles(const CacheBytes& bytes, Device device) {
  return {kernels::PageTiles(bytes[0].parts(), device), kernels::PageTiles(bytes[1].parts(), device),
          kernels::PageTiles(bytes[2].parts(), device)};
}

CopyQueue::CopyQueue(const CacheTiles& tiles, kernels::CopyDirection direction, Stream model)
    : tiles_(tiles), direction_(direction), model_(model) {
  if (model.device.type == DeviceType::kCuda) stream_ = gpu_stream_.emplace(model.device).get();
  thread_ = std::thread([this] { loop(); });
}

CopyQueue::~CopyQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_all();
  thread_.join();
}

void CopyQueue::start(std::shared_ptr<CopyBatch> batch, std::shared_ptr<const CopyBatch> after) {
  check();
  if (gpu_stream_) {
    const cuda::DeviceScope scope(model_.device);
    Stream model = model_;
    batch->model_position.emplace(model_.device).record(model);
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(batch), std::move(after)});
  }
  added_.notify_one();
}

void CopyQueue::set_max_delay(std::chrono::microseconds max_delay) { max_delay_us = max_delay.count(); }

void CopyQueue::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail(ErrorCode::kDevice, "copies of the prefix cache: ", failure_);
}

void CopyQueue::loop() {
  std::optional<cuda::DeviceScope> scope;
  if (gpu_stream_) scope.emplace(model_.device);
  std::mt19937 generator(static_cast<unsigned>(direction_));
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [&] { return stopping_ || !jobs_.empty() || !parts_.empty(); });
    if (jobs_.empty() && parts_.empty()) return;
    std::optional<Job> job;
    if (!jobs_.empty()) {
      job.emplace(std::move(jobs_.front()));
      jobs_.pop_front();
    }
    lock.unlock();
    std::string failure;
    try {
      if (const int64_t longest = max_delay_us; longest > 0)
        std::this_thread::sleep_for(
            std::chrono::microseconds(std::uniform_int_distribution<int64_t>(0, longest)(generator)));
      if (job)
        run(*job);
      else
        end_oldest_part();
    } catch (const std::exception& error) {
      failure = error.what();
      // Nobody reads the data: check() throws.
      for (const Part& part : parts_)
        if (part.batch) end(*part.batch);
      parts_.clear();
      if (job) end(*job->batch);
    }
    lock.lock();
    if (failure_.empty()) failure_ = failure;
  }
}

void CopyQueue::run(const Job& job) {
  if (job.after && !job.after->ended) {
    // The other queue may wait for batches of this one.
    while (!parts_.empty()) end_oldest_part();
    job.after->ended.wait(false);
  }
  if (gpu_stream_) return queue_on_gpu(job.batch);
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
    kernels::copy_pages(tiles_[kind], job.batch->copies[kind], direction_, stream_);
  end(*job.batch);
}

void CopyQueue::queue_on_gpu(const std::shared_ptr<CopyBatch>& batch) {
  batch->model_position->hold(stream_);
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    View<const kernels::PageCopy> pages = batch->copies[kind];
    const size_t part_pages =
        std::max<size_t>(1, kPartBytes / std::max<size_t>(1, tiles_[kind].page_bytes()));
    while (!pages.empty()) {
      const size_t count = std::min(pages.size(), part_pages);
      kernels::copy_pages(tiles_[kind], pages.first(count), direction_, stream_);
      pages = pages.subspan(count);
      parts_.push_back({.copied = cuda::Event(model_.device), .batch = nullptr});
      parts_.back().copied.record(stream_);
      if (parts_.size() > kMaxQueuedParts) end_oldest_part();
    }
  }
  if (parts_.empty())
    end(*batch);
  else
    parts_.back().batch = batch;
}

void CopyQueue::end_oldest_part() {
  const Part part = std::move(parts_.front());
  parts_.pop_front();
  if (part.batch == nullptr) return part.copied.synchronize();
  try {
    part.copied.synchronize();
  } catch (const Error&) {
    end(*part.batch);
    throw;
  }
  end(*part.batch);
}

void CopyQueue::end(CopyBatch& batch) {
  batch.ended = true;
  batch.ended.notify_all();
}

}  // namespace attend
