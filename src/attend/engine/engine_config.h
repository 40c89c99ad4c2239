// Configuration of an engine. Names follow SGLang's server arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/engine/output/pooling.h"
#include "attend/engine/schedule/schedule_policy.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/exec/graph_progress.h"
#include "attend/kv/prefix_cache.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/model.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

struct EngineConfig {
  std::filesystem::path model_path;  // Hugging Face model directory
  // The model to run instead of what model_path's config.json describes. Without a model_path there are dummy
  // weights and no tokenizer.
  std::optional<ModelSpec> model;
  LoadFormat load_format = LoadFormat::kAuto;
  Device device;
  BackendOptions backend_options;  // attention backends and page size
  // What backends are chosen from, a table that outlives the engine: attend's, or one with rows of your own,
  // which can be asked for by name. Empty: attend's.
  std::span<const BackendEntry> backends = {};
  // Of activations: float32, float16 or bfloat16. Not given: float32 on the CPU (which has no other), what
  // the weights are on a GPU; then a CPU may round what bfloat16 weights multiply to bfloat16.
  std::optional<DType> dtype;
  std::optional<DType> kv_cache_dtype;  // not given: the dtype of the weights
  int context_length = 0;               // tokens of a request, prompt and output; 0: the model's
  int max_running_requests = 0;         // 0: chosen
  int64_t max_total_tokens = 0;         // KV pool size in tokens; 0: chosen by the memory there is
  // Keys that the requests of a step may attend to together: bounds the workspaces of backends. 0: the pool's
  // size.
  int64_t max_kv_tokens = 0;
  // Models whose layers have a sliding window here and none there: layers with one get a half of the pool of
  // their own, of so many tokens for each of the others' (above 0, at most 1), unless that is turned off.
  double swa_full_tokens_ratio = 0.8;
  bool disable_hybrid_swa_memory = false;
  double mem_fraction_static = 0.85;  // GPUs: weights and KV pool may take this share of the memory
  // GPUs: decode steps are padded to one of these batch sizes (empty: chosen, up to cuda_graph_max_bs) and
  // replayed from CUDA graphs, unless that is turned off.
  bool disable_cuda_graph = false;
  std::vector<int> cuda_graph_bs;
  int cuda_graph_max_bs = 0;  // 0: chosen
  // New tokens of a step; longer prompts are computed in chunks. 0: 2048 on GPUs; 512 on CPUs, which are no
  // slower with them and keep a quarter of the activations.
  int chunked_prefill_size = 0;
  // Requests that begin alike share the K/V of what they have in common (the prefix cache); which of it goes
  // first when the pool is full.
  bool disable_radix_cache = false;
  EvictionPolicy radix_eviction_policy = EvictionPolicy::kLru;
  // Decode steps attend once to what several of their requests share, where that pays (cascade attention).
  bool disable_cascade_attention = false;
  // Reads of keys and values of one layer that this must save a step, in bytes; none: what pays on the
  // device.
  std::optional<int64_t> cascade_min_bytes;
  // While a decode step is computed, the next one is chosen and queued behind it, for the tokens that this
  // one is going to give: the device does not wait for the host. The same tokens; a request that stops there
  // without max_new_tokens saying so takes part in one step too many. Not given: on GPUs.
  std::optional<bool> overlap_schedule;
  SpeculativeOptions speculation;  // drafts that a step verifies; off unless an algorithm is named
  ScheduleOptions schedule;        // whose turn it is, and how many may wait
  // The engine makes vectors of inputs (PoolingRequest) and generates nothing: the model's head is not read,
  // and its tokens may see those after them. An input is computed in one step, so chunked_prefill_size is
  // the longest.
  std::optional<PoolingSpec> pooling;
  // A token depends on its own request alone, bit for bit: not on batch, chunks, preemption or thread count.
  bool deterministic_inference = false;
  bool log_kernels = false;  // which kernel serves what, each once
  uint64_t random_seed = 0;  // of requests that bring no seed

  bool on_gpu() const { return device.type == DeviceType::kCuda; }
};

class Engine;

// What is told while an engine is made, on the thread that makes it. Each may be empty.
struct EngineProgress {
  // Everything is chosen and no weights are read: the time to prepare requests. What it throws ends the
  // making.
  std::function<void(const Engine&)> resolved = {};
  LoadProgress weights;
  GraphProgress graphs;
};

}  // namespace attend
#pragma GCC visibility pop
