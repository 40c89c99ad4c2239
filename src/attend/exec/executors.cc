#include "attend/exec/executors.h"

#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

int num_layers_of_first(const std::vector<std::unique_ptr<ModelExecutor>>& executors) {
  ensure(!executors.empty(), "an engine without an executor");
  return executors.front()->num_kv_layers();
}

}  // namespace

Executors::Executors(std::vector<std::unique_ptr<ModelExecutor>> executors)
    : executors_(std::move(executors)), saturation_monitor_(num_layers_of_first(executors_)) {}

void Executors::load(const LoadProgress& progress) {
  for (const auto& executor : executors_)
    executor->load(progress, executor == executors_.front() ? nullptr : &executors_.front()->model());
}

void Executors::record_graphs(const GraphProgress& progress) {
  for (const auto& executor : executors_)
    if (!executor->decode_sizes().empty()) executor->record_graphs(progress);
}

void Executors::check_weights() const {
  for (const auto& executor : executors_) executor->model().check_weights();
}

void Executors::check_saturation(View<const TokenSlot> prompt_slots) {
  saturation_monitor_.check(executors_.front()->kv_pool(), prompt_slots);
}

void Executors::complete(std::span<ExecutorInfo> infos) const {
  ensure(infos.size() == executors_.size(), infos.size(), " infos for ", executors_.size(), " executors");
  for (size_t i = 0; i < infos.size(); ++i) executors_[i]->complete(infos[i]);
}

}  // namespace attend
