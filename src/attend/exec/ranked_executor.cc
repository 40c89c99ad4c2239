#include "attend/exec/ranked_executor.h"

#include "attend/base/error.h"

namespace attend {

RankedExecutor::RankedExecutor(std::span<const std::unique_ptr<ModelExecutor>> ranks, RankTeam& team)
    : ranks_(ranks), team_(team) {
  ensure(std::ssize(ranks) == team.num_ranks(), ranks.size(), " executors for ", team.num_ranks(), " ranks");
  if (first().on_gpu()) first_queued_.emplace(first().device());
}

ExecutorOutput RankedExecutor::launch(const ExecutorBatch& batch) {
  ExecutorOutput first;
  // Other ranks read token ids that rank 0 samples.
  if (first_queued_) {
    const cuda::DeviceScope scope(this->first().device());
    first_queued_->record(this->first().stream());
  }
  team_.run([&](int rank) {
    if (first_queued_ && rank > 0) first_queued_->hold(ranks_[static_cast<size_t>(rank)]->stream());
    const ExecutorOutput output = ranks_[static_cast<size_t>(rank)]->launch(batch);
    if (rank == 0) first = output;
  });
  return first;
}

TensorView RankedExecutor::compute_logits(int first_token, int num_tokens) {
  TensorView first;
  team_.run([&](int rank) {
    const TensorView logits = ranks_[static_cast<size_t>(rank)]->compute_logits(first_token, num_tokens);
    if (rank == 0) first = logits;
  });
  return first;
}

}  // namespace attend
