// Opens the tensors of a checkpoint and reads them into memory on a thread of its own, while the rest of an
// engine starts.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include "attend/checkpoint/checkpoint.h"

namespace attend {

class WeightPrefetcher {
 public:
  // `checkpoint` outlives it. Errors of the files are thrown by take(), not here. Where the system starts no
  // thread, take() opens the files.
  explicit WeightPrefetcher(const Checkpoint& checkpoint);
  ~WeightPrefetcher();
  WeightPrefetcher(const WeightPrefetcher&) = delete;

  // The tensors, once. Pages that are not read by then are read by the loader, with all threads. Throws as
  // open_tensors() does.
  std::shared_ptr<const CheckpointTensors> take();

 private:
  void run();
  void stop();

  const Checkpoint& checkpoint_;
  std::atomic<bool> stopping_ = false;
  // The thread's, until it is joined.
  std::shared_ptr<const CheckpointTensors> tensors_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace attend
