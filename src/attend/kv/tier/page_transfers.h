// PageTransfers: copies of page data between the pool and the host tier, concurrent to the model's steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "attend/kv/tier/copy_queue.h"
#include "attend/kv/tier/page_bytes.h"
#include "attend/kv/tier/page_data.h"
#include "attend/tensor/device.h"

namespace attend {

// Copies are queued and then started together, in batches that are numbered from 1 in each direction. They
// are in the order in which they were queued if they access the same data of the pool. Order with the model:
//   - A copy begins after the model's work that was queued when it was started.
//   - start() waits for copies of data that the model's next step may overwrite (reuse()).
//   - The caller schedules no step that reads data before their batch has ended (num_ended()).
//
// Belongs to the engine's owner thread. The caller keeps the memory of a copy on the host until its batch has
// ended.
class PageTransfers {
 public:
  using Direction = kernels::CopyDirection;

  // `bytes`: storage of the pool. `model`: stream of the model.
  PageTransfers(const CacheBytes& bytes, Stream model);
  // Waits for all copies.
  ~PageTransfers();
  PageTransfers(const PageTransfers&) = delete;
  PageTransfers& operator=(const PageTransfers&) = delete;

  // Queues a copy of data of the pool. Returns the number of its batch. `after`: kToCache: batch of kToHost
  // that writes the memory; 0: the memory is written.
  int64_t add(Direction direction, PageDataKind kind, int index, std::byte* host, int64_t after = 0);
  // The pool may reuse the storage of these data: the model's next step may write it.
  void reuse(PageDataKind kind, int index);
  // Starts the queued copies. Call it before each step of the model. Throws Error(kDevice) if a copy failed.
  void start();

  // Number of the last batch of which all copies have ended, and of those before. Does not wait.
  int64_t num_ended(Direction direction);
  // Batch that copies these data of the pool and has not ended; 0: none.
  int64_t batch_of(Direction direction, PageDataKind kind, int index) const;
  // Starts and waits for all copies.
  void drain();

 private:
  struct Lane {
    std::unique_ptr<CopyQueue> queue;
    std::deque<std::shared_ptr<CopyBatch>> started;  // and not ended
    std::shared_ptr<CopyBatch> next;                 // null: no copy is queued
    std::unordered_map<int64_t, int64_t> busy;       // last batch of data that has not ended, by key()
    int64_t num_batches = 0, num_ended = 0;          // num_batches includes `next`
    int64_t held = 0;                                // start() waits for this batch
  };

  static int64_t key(PageDataKind kind, int index) {
    return int64_t{index} * static_cast<int64_t>(kNumPageDataKinds) + static_cast<int64_t>(kind);
  }
  Lane& lane(Direction direction) { return lanes_[static_cast<size_t>(direction)]; }
  const Lane& lane(Direction direction) const { return lanes_[static_cast<size_t>(direction)]; }
  static Direction other(Direction direction) {
    return direction == Direction::kToHost ? Direction::kToCache : Direction::kToHost;
  }
  // Returns batch `number`, which is started; null: it has ended.
  static std::shared_ptr<CopyBatch> find_started(const Lane& lane, int64_t number);
  void start_next(Direction direction);
  void update(Lane& lane);

  std::array<size_t, kNumPageDataKinds> data_bytes_;
  CacheTiles tiles_;
  std::array<Lane, 2> lanes_;  // by Direction
};

}  // namespace attend
