// What an engine is told at start. Names follow SGLang's server arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

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
  Wishes wishes;  // attention backends and page size
  // What backends are chosen from, a table that outlives the engine: attend's, or one with rows of your own,
  // which can be asked for by name. Empty: attend's.
  std::span<const BackendEntry> backends = {};
  // Of activations: float32, float16 or bfloat16. Not given: float32 on the CPU (which has no other), what
  // the weights are on a GPU.
  std::optional<DType> dtype;
  std::optional<DType> kv_cache_dtype;  // not given: the dtype of the weights
  int context_length = 0;               // tokens of a request, prompt and output; 0: the model's
  int max_running_requests = 0;         // 0: chosen
  int64_t max_total_tokens = 0;         // KV pool size in tokens; 0: chosen by the memory there is
  // Keys that the requests of a step may attend to together: bounds the workspaces of backends. 0: the pool's
  // size.
  int64_t max_kv_tokens = 0;
  double mem_fraction_static = 0.85;  // GPUs: weights and KV pool may take this share of the memory
  // GPUs: decode steps are padded to one of these batch sizes (empty: chosen, up to cuda_graph_max_bs) and
  // replayed from CUDA graphs, unless that is turned off.
  bool disable_cuda_graph = false;
  std::vector<int> cuda_graph_bs;
  int cuda_graph_max_bs = 0;        // 0: chosen
  int chunked_prefill_size = 2048;  // new tokens of a step; longer prompts are computed in chunks
  // A token depends on its own request alone, bit for bit: not on batch, chunks, preemption or thread count.
  bool deterministic_inference = false;
  bool log_kernels = false;  // which kernel serves what, each once
  uint64_t random_seed = 0;  // of requests that bring no seed
};

// CUDA graphs of decode steps while they are recorded, the largest batch size first.
struct GraphsSoFar {
  int batch_size;  // in hand; once all are done the last one
  int num_done;    // of num_sizes
  int num_sizes;
  size_t num_bytes;  // of device memory that those which are done take
};

// What is told while an engine is made, on the thread that makes it. Either may be empty.
struct EngineProgress {
  LoadProgress weights;
  std::function<void(const GraphsSoFar&)> graphs;
};

}  // namespace attend
#pragma GCC visibility pop
