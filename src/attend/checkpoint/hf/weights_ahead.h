// Opens the weights of a model directory and reads them into memory by a thread of its own, while the rest of
// an engine starts.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>

#include "attend/checkpoint/hf/model_weights.h"

namespace attend {

class WeightsAhead {
 public:
  // Throws nothing that the directory is to blame for: take() does. Where the system starts no thread, take()
  // opens the files.
  explicit WeightsAhead(std::filesystem::path directory);
  ~WeightsAhead();
  WeightsAhead(const WeightsAhead&) = delete;

  // The files, once; whatever is not read by then is left to who loads them, with all threads. Throws as
  // ModelWeights does.
  ModelWeights take();

 private:
  void run();
  void stop();

  const std::filesystem::path directory_;
  std::atomic<bool> stopping_ = false;
  // The thread's, until it is joined.
  std::optional<ModelWeights> files_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace attend
