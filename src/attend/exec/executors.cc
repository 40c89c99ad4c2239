#include "attend/exec/executors.h"

#include <optional>
#include <utility>

#include "attend/base/error.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

int num_layers_of_first(const std::vector<std::unique_ptr<ModelExecutor>>& executors) {
  ensure(!executors.empty(), "an engine without an executor");
  return executors.front()->num_kv_layers();
}

}  // namespace

Executors::Executors(std::vector<std::unique_ptr<ModelExecutor>> executors, std::unique_ptr<RankTeam> ranks)
    : ranks_(std::move(ranks)),
      executors_(std::move(executors)),
      saturation_monitor_(num_layers_of_first(executors_)) {
  ensure(executors_.size() % num_ranks() == 0, executors_.size(), " executors on ", num_ranks(), " ranks");
  if (!ranks_) return;
  for (size_t first = 0; first < executors_.size(); first += num_ranks())
    ranked_.push_back(
        std::make_unique<RankedExecutor>(std::span(executors_).subspan(first, num_ranks()), *ranks_));
}

Executor* Executors::all_ranks(size_t model) {
  if (model * num_ranks() >= executors_.size()) return nullptr;
  if (!ranked_.empty()) return ranked_[model].get();
  return executors_[model].get();
}

void Executors::load(const LoadProgress& progress) {
  for (size_t i = 0; i < executors_.size(); ++i) {
    std::optional<cuda::DeviceScope> device;
    if (executors_[i]->on_gpu()) device.emplace(executors_[i]->device());
    executors_[i]->load(progress, i < num_ranks() ? nullptr : &executors_[i % num_ranks()]->model());
  }
}

void Executors::record_graphs(const GraphProgress& progress) {
  for (size_t first = 0; first < executors_.size(); first += num_ranks()) {
    if (executors_[first]->decode_sizes().empty()) continue;
    if (!ranks_) {
      executors_[first]->record_graphs(progress);
      continue;
    }
    // All ranks record the same sizes in the same order: each size runs once before, and its ranks wait for
    // each other.
    ranks_->run([&](int rank) {
      executors_[first + static_cast<size_t>(rank)]->record_graphs(rank == 0 ? progress : GraphProgress());
    });
  }
}

void Executors::check_weights() const {
  for (const auto& executor : executors_) executor->model().check_weights();
}

std::vector<const AdapterLayers*> Executors::adapter_layers() const {
  std::vector<const AdapterLayers*> ranks;
  for (size_t rank = 0; rank < num_ranks(); ++rank)
    ranks.push_back(executors_[rank]->model().adapter_layers());
  return ranks;
}

CacheBytes Executors::page_bytes() const {
  CacheBytes bytes;
  for (size_t rank = 0; rank < num_ranks(); ++rank) {
    const CacheBytes of_rank = executors_[rank]->page_bytes();
    for (size_t kind = 0; kind < bytes.size(); ++kind) bytes[kind].add(of_rank[kind]);
  }
  return bytes;
}

void Executors::check_saturation(View<const TokenSlot> prompt_slots) {
  saturation_monitor_.check(executors_.front()->kv_pool(), prompt_slots);
}

void Executors::complete(std::span<ExecutorInfo> infos) const {
  ensure(infos.size() == executors_.size(), infos.size(), " infos for ", executors_.size(), " executors");
  for (size_t i = 0; i < infos.size(); ++i) executors_[i]->complete(infos[i]);
}

}  // namespace attend
