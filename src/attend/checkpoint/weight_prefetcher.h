// Opens the tensors of a checkpoint and reads them into memory on a separate thread, while the engine starts.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include "attend/checkpoint/checkpoint.h"

namespace attend {

class WeightPrefetcher {
 public:
  // `checkpoint` must outlive this object. Errors of the files are thrown by take(), not here. If no thread
  // can be started, take() opens the files.
  explicit WeightPrefetcher(const Checkpoint& checkpoint);
  ~WeightPrefetcher();
  WeightPrefetcher(const WeightPrefetcher&) = delete;

  // Returns the tensors; may be called once. The loader reads the remaining pages with all threads. Throws
  // the errors of open_tensors().
  std::shared_ptr<const CheckpointTensors> take();

 private:
  void run();
  void stop();

  const Checkpoint& checkpoint_;
  std::atomic<bool> stopping_ = false;
  // Owned by the thread until it is joined.
  std::shared_ptr<const CheckpointTensors> tensors_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace attend
