// Executors: all executors of an engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/base/ids.h"
#include "attend/exec/executor.h"
#include "attend/exec/executor_info.h"
#include "attend/exec/model_executor.h"
#include "attend/exec/saturation_monitor.h"

namespace attend {

// Owns the executors that share request rows and token slots. An engine's operation applies to all of them.
class Executors {
 public:
  // `executors` is not empty. The first executor is the target.
  explicit Executors(std::vector<std::unique_ptr<ModelExecutor>> executors);

  // Computes scheduled steps. Its logits are sampled, and its hidden states are pooled.
  Executor& target() { return *executors_.front(); }
  // Predicts drafts; null without a draft model.
  ModelExecutor* draft() { return executors_.size() > 1 ? executors_[1].get() : nullptr; }

  // Loads the executors in order, drafts with the target's vocabulary; `progress` counts the bytes of each.
  // Throws the errors of ModelExecutor::load.
  void load(const LoadProgress& progress = {});
  // Records the CUDA graphs of executors that have decode sizes, in order. Call after load().
  void record_graphs(const GraphProgress& progress = {});
  // Throws the errors of Model::check_weights for the first executor with modified files. Call after load().
  void check_weights() const;
  // Checks the K/V of a computed prompt in the target's pool (SaturationMonitor). A draft model may not have
  // computed them yet.
  void check_saturation(View<const TokenSlot> prompt_slots);

  // Completes the infos, one per executor: KV scales, and sizes that are known after loading and recording.
  void complete(std::span<ExecutorInfo> infos) const;

 private:
  std::vector<std::unique_ptr<ModelExecutor>> executors_;
  SaturationMonitor saturation_monitor_;
};

}  // namespace attend
