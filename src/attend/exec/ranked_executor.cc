#include "attend/exec/ranked_executor.h"

#include "attend/base/error.h"

namespace attend {

RankedExecutor::RankedExecutor(std::span<const std::unique_ptr<ModelExecutor>> ranks, RankTeam& team)
    : ranks_(ranks), team_(team) {
  ensure(std::ssize(ranks) == team.num_ranks(), ranks.size(), " executors for ", team.num_ranks(), " ranks");
}

ExecutorOutput RankedExecutor::launch(const ExecutorBatch& batch) {
  ExecutorOutput first;
  team_.run([&](int rank) {
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
