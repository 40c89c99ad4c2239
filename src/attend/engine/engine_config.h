// What an engine is told at start. Names follow SGLang's server arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "attend/attention/resolver.h"
#include "attend/model/model.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

struct EngineConfig {
  std::filesystem::path model_path;  // Hugging Face model directory
  LoadFormat load_format = LoadFormat::kAuto;
  Device device;
  Wishes wishes;                        // attention backends and page size
  std::optional<DType> kv_cache_dtype;  // not given: the dtype of the weights
  int context_length = 0;               // tokens of a request, prompt and output; 0: the model's
  int max_running_requests = 0;         // 0: chosen
  int64_t max_total_tokens = 0;         // KV pool size in tokens; 0: chosen by the memory there is
  int chunked_prefill_size = 2048;      // new tokens of a step; longer prompts are computed in chunks
  uint64_t random_seed = 0;             // of requests that bring no seed
};

}  // namespace attend
#pragma GCC visibility pop
