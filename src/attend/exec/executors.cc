#include "attend/exec/executors.h"

#include <optional>
#include <ranges>
#include <utility>

#include "attend/base/error.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

std::optional<cuda::DeviceScope> device_scope(ModelExecutor& executor) {
  if (!executor.on_gpu()) return std::nullopt;
  return std::optional<cuda::DeviceScope>(std::in_place, executor.device());
}

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
    const auto device = device_scope(*executors_[i]);
    executors_[i]->load(progress, target_of(i));
  }
}

bool Executors::reads_target_files(size_t idx) const {
  if (idx < num_ranks()) return true;
  const auto &own = executors_[idx]->checkpoint(), &target = executors_.front()->checkpoint();
  return own != nullptr && target != nullptr && own->path() == target->path();
}

void Executors::check_weights(const Checkpoint& checkpoint) const {
  for (size_t i = 0; i < executors_.size(); ++i)
    if (reads_target_files(i)) executors_[i]->check_weights(checkpoint);
}

void Executors::set_checkpoint(const std::shared_ptr<const Checkpoint>& checkpoint) {
  // From the last one: the first one determines the files of the others.
  for (size_t i = executors_.size(); i-- > 0;)
    if (reads_target_files(i)) executors_[i]->set_checkpoint(checkpoint);
}

void Executors::update_weights(const std::shared_ptr<const Checkpoint>& checkpoint) {
  if (executors_.front()->on_gpu()) return replace_on_gpu(checkpoint);
  std::vector<std::optional<ModelExecutor::NewWeights>> weights;
  for (size_t i = 0; i < executors_.size(); ++i)
    weights.push_back(reads_target_files(i) ? std::optional(executors_[i]->read_weights(checkpoint))
                                            : std::nullopt);
  for (size_t i = 0; i < executors_.size(); ++i) {
    if (weights[i])
      executors_[i]->use_weights(*std::move(weights[i]), target_of(i));
    else if (const Model* const target = target_of(i))
      executors_[i]->share_vocab(*target);
  }
}

// The memory has room for one set of weights. Graphs contain the addresses of the old ones.
void Executors::replace_on_gpu(const std::shared_ptr<const Checkpoint>& checkpoint) {
  check_weights(*checkpoint);
  const std::shared_ptr<const Checkpoint> before = executors_.front()->checkpoint();
  release({.weights = true});
  const auto load_from = [&](const std::shared_ptr<const Checkpoint>& files) {
    set_checkpoint(files);
    allocate({.weights = true});
  };
  try {
    load_from(checkpoint);
  } catch (const Error& error) {
    try {
      load_from(before);
    } catch (const Error& second) {
      fail(error.code(), error.what(), "; the weights are released, since those of ", before->path().string(),
           " could not be loaded again: ", second.what());
    }
    throw;
  }
}

void Executors::release(MemoryParts parts) {
  if (!parts.any()) return;
  for (const auto& executor : executors_ | std::views::reverse) {
    const auto device = device_scope(*executor);
    executor->release(parts);
  }
  released_ = released_ | parts;
}

void Executors::allocate(MemoryParts parts) {
  parts = parts & released_;
  if (!parts.any()) return;
  try {
    if (parts.kv_cache)
      for (const auto& executor : executors_) {
        const auto device = device_scope(*executor);
        executor->allocate_cache();
      }
    if (parts.weights) load();
    const MemoryParts missing = released_ - parts;
    if (!missing.any() && has_graphs_) record_graphs();
    released_ = missing;
  } catch (...) {
    release(parts);
    throw;
  }
}

void Executors::record_graphs(const GraphProgress& progress) {
  has_graphs_ = true;
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
  if (released_.weights) return;
  for (const auto& executor : executors_) executor->model().check_weights();
}

std::vector<AdapterLayers> Executors::adapter_layers() const {
  std::vector<AdapterLayers> ranks;
  for (size_t rank = 0; rank < num_ranks(); ++rank)
    ranks.push_back(*executors_[rank]->model().adapter_layers());
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
