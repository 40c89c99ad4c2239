#include "attend/checkpoint/hf/weights_ahead.h"

#include <system_error>
#include <utility>

namespace attend {

WeightsAhead::WeightsAhead(std::filesystem::path directory) : directory_(std::move(directory)) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

WeightsAhead::~WeightsAhead() { stop(); }

void WeightsAhead::run() {
  try {
    files_.emplace(directory_);
    files_->read_ahead(stopping_);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void WeightsAhead::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

ModelWeights WeightsAhead::take() {
  stop();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (!files_) return ModelWeights(directory_);
  ModelWeights files = *std::move(files_);
  files_.reset();
  return files;
}

}  // namespace attend
