// RankedExecutor: one model on several ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "attend/exec/model_executor.h"
#include "attend/exec/rank_team.h"

namespace attend {

// Launches each step on all ranks. Results are those of rank 0, which gathers the logits.
class RankedExecutor final : public Executor {
 public:
  // `ranks`: executors by rank, loaded with the communicators of `team`. All must outlive this object.
  RankedExecutor(std::span<const std::unique_ptr<ModelExecutor>> ranks, RankTeam& team);

  // Throw the errors of RankTeam::run.
  ExecutorOutput launch(const ExecutorBatch& batch) override;
  TensorView compute_logits(int first_token, int num_tokens) override;

  void check_completed() override { team_.check_completed(); }

  Stream& stream() override { return first().stream(); }
  const BatchLimits& limits() const override { return first().limits(); }
  const ModelSpec& spec() const override { return first().spec(); }
  View<const int32_t> head_tokens() const override { return first().head_tokens(); }

 private:
  ModelExecutor& first() const { return *ranks_.front(); }

  std::span<const std::unique_ptr<ModelExecutor>> ranks_;
  RankTeam& team_;
  std::optional<cuda::Event>
      first_queued_;  // GPUs: what rank 0 queued before a step, such as its sampled tokens
};

}  // namespace attend
