#include "attend/checkpoint/weight_prefetcher.h"

#include <system_error>
#include <utility>

namespace attend {

WeightPrefetcher::WeightPrefetcher(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

WeightPrefetcher::~WeightPrefetcher() { stop(); }

void WeightPrefetcher::run() {
  try {
    tensors_ = checkpoint_.open_tensors();
    tensors_->prefetch_all(stopping_);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void WeightPrefetcher::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const CheckpointTensors> WeightPrefetcher::take() {
  stop();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return tensors_ ? std::move(tensors_) : checkpoint_.open_tensors();
}

}  // namespace attend
