// Engine: weights and memory that change between steps.
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"
#include "attend/engine/engine.h"
#include "attend/engine/make_tiers.h"
#include "attend/engine/schedule/request_memory.h"
#include "attend/engine/schedule/scheduler.h"
#include "attend/exec/executors.h"
#include "attend/model/config/same_model.h"

namespace attend {

void Engine::require_changeable(const char* operation) const {
  ensure(!in_flight(), operation, "() during a step");
  if (config_.pooling)
    fail(ErrorCode::kUnsupported, operation, ": an engine that pools inputs keeps its weights and memory");
  if (config_.on_gpu()) fail(ErrorCode::kUnsupported, operation, ": on CPUs only; restart the server");
}

void Engine::check_same_model(const Checkpoint& checkpoint) const {
  const ModelSpec given = read_config(checkpoint);
  if (is_same_model(given, configured_)) return;
  std::string field;
  if (!config_text_.empty()) field = find_different_field(checkpoint, config_text_);
  fail(ErrorCode::kInvalidArgument, checkpoint.path().string(),
       ": config.json describes another model than the running one", field.empty() ? "" : ": ", field);
}

void Engine::update_weights(const std::filesystem::path& model_path, bool flush_cache) {
  require_changeable("update_weights");
  require(!model_path.empty(), "update_weights: the model path is empty");
  require(flush_cache || config_.hierarchical_cache.storage_dir.empty(),
          "flush_cache false: not with hicache_storage_dir, whose pages belong to the old weights");
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(model_path);
  check_same_model(*checkpoint);
  if (executors_->released().weights) {
    executors_->check_weights(*checkpoint);
    executors_->set_checkpoint(checkpoint);
  } else {
    executors_->update_weights(checkpoint);
  }
  config_.model_path = model_path;
  config_.load_format = LoadFormat::kAuto;
  if (!flush_cache) return;
  drop_caches();
  if (!executors_->released().kv_cache) open_tiers();
}

void Engine::preempt_all() {
  ensure(!in_flight(), "preempt_all() during a step");
  scheduler_->preempt_all(false);
}

void Engine::release_memory(MemoryParts parts) {
  require_changeable("release_memory");
  if (parts.kv_cache && !executors_->released().kv_cache) drop_caches();
  executors_->release(parts);
}

void Engine::allocate_memory(MemoryParts parts) {
  const MemoryParts before = executors_->released();
  executors_->allocate(parts);
  if (before.kv_cache && !executors_->released().kv_cache) open_tiers();
}

MemoryParts Engine::released_memory() const { return executors_->released(); }

void Engine::drop_caches() {
  scheduler_->preempt_all(image_steps_ != nullptr);
  memory_->drop_unlocked();
  if (config_.hierarchical_cache.enabled) memory_->use_tiers(nullptr);
}

// The pages of the disk tier are those of one set of weights.
void Engine::open_tiers() {
  if (!config_.hierarchical_cache.enabled) return;
  try {
    const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(config_.model_path);
    EngineInfo info = info_;
    memory_->use_tiers(make_tiers(config_, info, memory_->page_data(), executors_->page_bytes(),
                                  executors_->target().stream(), checkpoint.get()));
  } catch (const Error& error) {
    log_warning("the tiers of the prefix cache below the pool are lost: ", error.what());
  }
}

}  // namespace attend
