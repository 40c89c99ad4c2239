// Executors: all executors of an engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/base/ids.h"
#include "attend/exec/executor.h"
#include "attend/exec/executor_info.h"
#include "attend/exec/graph_progress.h"
#include "attend/exec/model_executor.h"
#include "attend/exec/saturation_monitor.h"

namespace attend {

// Owns executors that share request rows and token slots, and does for all of them what an engine does once.
class Executors {
 public:
  // At least one; the first one is the target.
  explicit Executors(std::vector<std::unique_ptr<ModelExecutor>> executors);

  // Computes the steps that are scheduled: its logits are sampled, its hidden states are pooled.
  Executor& target() { return *executors_.front(); }

  // Loads one executor after another; `progress` counts the bytes of each. Throws as ModelExecutor::load
  // does.
  void load(const LoadProgress& progress = {});
  // Records the CUDA graphs of executors that have decode sizes, one after another; after load().
  void record_graphs(const GraphProgress& progress = {});
  // Throws as Model::check_weights does, for the first executor whose files were written to; after load().
  void check_weights() const;
  // Checks the stored K/V of a computed prompt in each pool (SaturationMonitor).
  void check_saturation(View<const TokenSlot> prompt_slots);

  // Completes the infos, one for each executor: KV scales, and sizes that loading and recording have measured
  // so far.
  void complete(std::span<ExecutorInfo> infos) const;

 private:
  std::vector<std::unique_ptr<ModelExecutor>> executors_;
  std::vector<SaturationMonitor> saturation_monitors_;  // one for each
};

}  // namespace attend
