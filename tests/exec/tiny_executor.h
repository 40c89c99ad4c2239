// Configuration of an executor on the CPU with the bundled model.
#pragma once

#include "attend/backends/table.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/exec/model_executor.h"

namespace attend::test {

constexpr int kContextLen = 64, kPageSize = 16, kMaxReqs = 2;

inline ExecutorConfig tiny_config() {
  ExecutorConfig config;
  config.checkpoint = open_checkpoint(ATTEND_SOURCE_DIR "/models/attend-tiny");
  config.model = read_config(*config.checkpoint);
  const BackendEntry* const entry = find_backend(backend_table(), "cpu");
  config.resolution = {.prefill = entry, .decode = entry, .page_size = kPageSize};
  config.backend = {.model = config.model.geometry(DType::kF32, DType::kF32),
                    .limits = {.max_reqs = kMaxReqs, .max_tokens = 32, .max_kv_tokens = 128},
                    .page_size = kPageSize};
  config.backend.model.max_context_len = kContextLen;
  config.storage = make_cache_storage_config(config.model.caches(), kPageSize, DType::kF32);
  config.storage.num_pages = 1 + kMaxReqs * kContextLen / kPageSize;
  return config;
}

}  // namespace attend::test
