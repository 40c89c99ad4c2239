// Resolves one executor of an engine: backends, dtypes and cache storage of a model.
#pragma once

#include <memory>
#include <optional>

#include "attend/checkpoint/checkpoint.h"
#include "attend/engine/engine_config.h"
#include "attend/exec/executor_config.h"
#include "attend/exec/executor_info.h"

namespace attend {

// Sizes that the executors of an engine share: batches, request rows and token slots.
struct SharedSizes {
  BatchLimits limits;                 // max_kv_tokens is 0 until set_pool_size()
  int context_length = 0;             // maximum tokens of a request
  std::optional<int> page_size = {};  // none: chosen together with the backends
  int rank = 0;                       // of EngineConfig::tp_size
};

struct ResolvedExecutor {
  ExecutorInfo info;
  ExecutorConfig config;      // the KV pool has two pages until set_pool_size()
  double weight_bytes = 0.0;  // upper bound of device memory; mapped weights need none
  bool is_draft = false;      // predicts drafts for the first executor of the engine
};

// Chooses how the device of `config` runs `model`. `checkpoint`: contains its weights; null: dummy weights.
// Allocates nothing. Throws Error(kInvalidArgument) or Error(kUnsupported) for an unsupported option, and for
// a model that tp_size ranks cannot divide.
ResolvedExecutor resolve_executor(const EngineConfig& config, const ModelSpec& model,
                                  std::shared_ptr<const Checkpoint> checkpoint, const SharedSizes& sizes);

struct PoolSizes {
  int num_pages = 0;   // of the KV pool, including the padding page
  int num_states = 0;  // of recurrent layers: the padding state, those of requests, snapshots and drafts
};
// Sets the sizes of the pools, and of workspaces for `max_kv_tokens` keys per step.
void set_pool_size(ResolvedExecutor& executor, const PoolSizes& sizes, int64_t max_kv_tokens);

// Bytes of device memory by use. They are doubles because products of sizes may not fit a size_t.
struct ExecutorBytes {
  double weights = 0.0, kv_pool = 0.0, states = 0.0;
  double results = 0.0;  // logits or hidden states
  double activations = 0.0, workspaces = 0.0;
};
// Requires set_pool_size().
ExecutorBytes executor_bytes(const ResolvedExecutor& executor);

}  // namespace attend
