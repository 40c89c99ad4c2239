#include "attend/checkpoint/weights_ahead.h"

#include <system_error>
#include <utility>

namespace attend {

WeightsAhead::WeightsAhead(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

WeightsAhead::~WeightsAhead() { stop(); }

void WeightsAhead::run() {
  try {
    tensors_ = checkpoint_.open_tensors();
    tensors_->read_ahead(stopping_);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void WeightsAhead::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const CheckpointTensors> WeightsAhead::take() {
  stop();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return tensors_ ? std::move(tensors_) : checkpoint_.open_tensors();
}

}  // namespace attend
