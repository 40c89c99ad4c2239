// Executors: all executors of an engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/base/ids.h"
#include "attend/exec/executor.h"
#include "attend/exec/executor_info.h"
#include "attend/exec/model_executor.h"
#include "attend/exec/rank_team.h"
#include "attend/exec/ranked_executor.h"
#include "attend/exec/saturation_monitor.h"

namespace attend {

// Owns the executors that share request rows and token slots. An engine's operation applies to all of them.
class Executors {
 public:
  // `executors`: those of the target's ranks, then those of a draft model's ranks; not empty. `ranks`: their
  // threads, with the communicators of the executors; null: one rank.
  explicit Executors(std::vector<std::unique_ptr<ModelExecutor>> executors,
                     std::unique_ptr<RankTeam> ranks = nullptr);

  // Computes scheduled steps. Its logits are sampled, and its hidden states are pooled.
  Executor& target() { return *all_ranks(0); }
  // Predicts drafts; null without a draft model.
  Executor* draft() { return all_ranks(1); }
  // Encodes the target's images; null if it encodes none.
  ImageEncoder* image_encoder() { return executors_.front()->image_encoder(); }
  // Reason for which no step can be launched, after a rank has failed; empty: there is none. Thread-safe.
  std::string failure() const { return ranks_ ? ranks_->failure() : std::string(); }

  // Loads the executors in order, drafts with the target's vocabulary of their rank; `progress` counts the
  // bytes of each. Throws the errors of ModelExecutor::load.
  void load(const LoadProgress& progress = {});
  // Records the CUDA graphs of executors that have decode sizes, in order. Call after load().
  void record_graphs(const GraphProgress& progress = {});
  // Layers of the target on each rank that adapters may change. Call after load().
  std::vector<const AdapterLayers*> adapter_layers() const;
  // Throws the errors of Model::check_weights for the first executor with modified files. Call after load().
  void check_weights() const;
  // Addresses of the data of cached pages in the storage of the target's ranks.
  CacheBytes page_bytes() const;
  // Checks the K/V of a computed prompt in the target's pool (SaturationMonitor). A draft model may not have
  // computed them yet.
  void check_saturation(View<const TokenSlot> prompt_slots);

  // Completes the infos, one per executor: KV scales, and sizes that are known after loading and recording.
  void complete(std::span<ExecutorInfo> infos) const;

 private:
  size_t num_ranks() const { return ranks_ ? static_cast<size_t>(ranks_->num_ranks()) : 1; }
  // Executor of all ranks of the target (0) or the draft model (1); null: there is no such model.
  Executor* all_ranks(size_t model);

  std::unique_ptr<RankTeam> ranks_;
  std::vector<std::unique_ptr<ModelExecutor>> executors_;
  std::vector<std::unique_ptr<RankedExecutor>> ranked_;  // by model; empty: one rank
  SaturationMonitor saturation_monitor_;
};

}  // namespace attend
