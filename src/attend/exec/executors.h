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

  // Replaces the weights of the target, and of a draft in the target's files, by those of another checkpoint
  // with the same config. If it throws, the old weights stay: on a CPU the new ones are read next to them,
  // and on a GPU the old files are loaded again after an error. If that fails too, the weights are released,
  // and the error says so. Throws the errors of ModelExecutor::read_weights.
  void update_weights(const std::shared_ptr<const Checkpoint>& checkpoint);
  // Checks the checkpoint as update_weights() does before it reads tensors. With released weights,
  // set_checkpoint() then selects the files that allocate() loads.
  void check_weights(const Checkpoint& checkpoint) const;
  void set_checkpoint(const std::shared_ptr<const Checkpoint>& checkpoint);
  // Parts without memory.
  MemoryParts released() const { return released_; }
  void release(MemoryParts parts);
  // Allocates released parts; the KV cache is empty. If it throws, the parts are released.
  void allocate(MemoryParts parts);

  // Records the CUDA graphs of executors that have decode sizes, in order. Call after load().
  void record_graphs(const GraphProgress& progress = {});
  // Layers of the target on each rank that adapters may change. Call after load().
  std::vector<AdapterLayers> adapter_layers() const;
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
  // Target's model of the rank of executor `idx`, if that is a draft; null: it is none.
  const Model* target_of(size_t idx) const {
    return idx < num_ranks() ? nullptr : &executors_[idx % num_ranks()]->model();
  }
  // Whether executor `idx` reads the files of the target.
  bool reads_target_files(size_t idx) const;
  void replace_on_gpu(const std::shared_ptr<const Checkpoint>& checkpoint);
  // Executor of all ranks of the target (0) or the draft model (1); null: there is no such model.
  Executor* all_ranks(size_t model);

  std::unique_ptr<RankTeam> ranks_;
  std::vector<std::unique_ptr<ModelExecutor>> executors_;
  std::vector<std::unique_ptr<RankedExecutor>> ranked_;  // by model; empty: one rank
  SaturationMonitor saturation_monitor_;
  MemoryParts released_;
  bool has_graphs_ = false;
};

}  // namespace attend
