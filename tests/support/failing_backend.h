// The CPU's attention backend with a fault on one rank of an engine.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "attend/backends/table.h"

namespace attend::test {

// Fault of one rank's attention backend.
struct Fault {
  enum class Phase { kNone, kPlan, kFirstLayer, kLastLayer };
  Phase phase = Phase::kNone;
  int rank = 0;
  int step = 0;        // number of the rank's plans before it
  bool hangs = false;  // instead of throwing: returns late
};
inline Fault planted;
inline std::atomic<int> num_backends = 0;  // created so far; ranks are created in their order
inline constexpr auto kHang = std::chrono::milliseconds(1500);

inline void plant(const Fault& fault) {
  planted = fault;
  num_backends = 0;
}

class FailingBackend final : public AttentionBackend {
 public:
  FailingBackend(std::unique_ptr<AttentionBackend> backend, int num_layers, int rank)
      : backend_(std::move(backend)), num_layers_(num_layers), rank_(rank) {}

  void plan(const ForwardBatch& batch, Stream& stream) override {
    layer_ = 0;
    fail_in(Fault::Phase::kPlan);
    ++step_;
    backend_->plan(batch, stream);
  }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    return backend_->destination(layer, batch);
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override {
    ++layer_;
    --step_;
    if (layer_ == 1) fail_in(Fault::Phase::kFirstLayer);
    if (layer_ == num_layers_) fail_in(Fault::Phase::kLastLayer);
    ++step_;
    backend_->forward(layer, input, batch, stream);
  }

 private:
  void fail_in(Fault::Phase phase) const {
    if (planted.phase != phase || planted.rank != rank_ || planted.step != step_) return;
    if (planted.hangs) return std::this_thread::sleep_for(kHang);
    throw std::runtime_error("planted");
  }

  std::unique_ptr<AttentionBackend> backend_;
  int num_layers_, rank_;
  int step_ = 0, layer_ = 0;
};

// Row "failing" of a table of backends.
inline BackendEntry failing_backend() {
  BackendEntry entry = *find_backend(backend_table(), "cpu");
  entry.name = "failing";
  entry.aliases = {};
  entry.create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
    return std::make_unique<FailingBackend>(find_backend(backend_table(), "cpu")->create(context),
                                            static_cast<int>(context.config.model.layers.size()),
                                            num_backends++);
  };
  return entry;
}

}  // namespace attend::test
