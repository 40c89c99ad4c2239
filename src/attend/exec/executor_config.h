// ExecutorConfig: one model on one rank, with every size resolved.
#pragma once

#include <memory>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/attention/resolver.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/kv/storage/cache_storage_config.h"
#include "attend/model/model.h"

namespace attend {

struct ExecutorConfig {
  std::shared_ptr<const Checkpoint> checkpoint;  // null: dummy weights
  ModelSpec model;
  ModelPlacement placement;
  Resolution resolution;
  BackendConfig backend;  // geometry, limits of a step, page size
  CacheStorageConfig storage;
  // false: batches have no ForwardBatch::prefix, so latent attention is absorbed in every step.
  bool has_prefix_info = true;
  bool logits = true;          // batches may have rows of logits
  bool hidden_states = false;  // batches may request hidden states
  // GPUs: batch sizes that decode steps are padded to, in ascending order, at most limits.max_reqs. Empty:
  // decode steps are not padded.
  std::vector<int> decode_sizes;
};

}  // namespace attend
