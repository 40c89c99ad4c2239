// CopyQueue: batches of copies of page data in one direction, concurrent to the model's steps.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "attend/kernels/kv_store/copy_pages.h"
#include "attend/kv/tier/page_bytes.h"
#include "attend/kv/tier/page_data.h"
#include "attend/tensor/cuda.h"
#include "attend/tensor/device.h"

namespace attend {

struct CopyBatch {
  int64_t number = 0;
  std::array<std::vector<kernels::PageCopy>, kNumPageDataKinds> copies;  // by PageDataKind
  size_t num_bytes = 0;
  int64_t after = 0;  // number of the other direction's batch that must end before; 0: none

  // State of the queue.
  std::optional<cuda::Event> model_position;  // GPUs: the model's work before the copies
  std::atomic<bool> ended = false;
};

using CacheTiles = std::array<kernels::PageTiles, kNumPageDataKinds>;
CacheTiles make_cache_tiles(const CacheBytes& bytes, Device device);

// Copies batch after batch on a thread of its own. On a GPU the thread queues the copies on a stream of its
// own, a few at a time: the driver blocks a thread, and can block others, when many copies are queued.
//
// The engine's owner thread calls it.
class CopyQueue {
 public:
  // `tiles` must outlive the queue. `model`: stream of the model that computes with the cache.
  CopyQueue(const CacheTiles& tiles, kernels::CopyDirection direction, Stream model);
  // Waits for all copies.
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Starts a batch. Its copies begin after those of earlier batches, after `after`, which another queue has
  // started (null: none), and after all work that the model's stream has at the time of the call. Throws
  // Error(kDevice) if a copy has failed.
  void start(std::shared_ptr<CopyBatch> batch, std::shared_ptr<const CopyBatch> after);
  // Throws Error(kDevice) if a copy has failed.
  void check() const;

  // For tests: each batch of all queues begins after a random delay, at most `max_delay`.
  static void set_max_delay(std::chrono::microseconds max_delay);

 private:
  struct Job {
    std::shared_ptr<CopyBatch> batch;
    std::shared_ptr<const CopyBatch> after;  // null: none
  };
  // Part of a batch that is queued on the stream.
  struct Part {
    cuda::Event copied;
    std::shared_ptr<CopyBatch> batch;  // null: the batch has more parts
  };

  void loop();
  void run(const Job& job);
  void queue_on_gpu(const std::shared_ptr<CopyBatch>& batch);
  void end_oldest_part();
  static void end(CopyBatch& batch);

  const CacheTiles& tiles_;
  const kernels::CopyDirection direction_;
  const Stream model_;
  Stream stream_;
  std::optional<cuda::OwnedStream> gpu_stream_;
  std::deque<Part> parts_;  // of the thread
  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Job> jobs_;
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace attend
