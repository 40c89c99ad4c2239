// Configuration of an engine. Names follow SGLang's server arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/engine/output/pooling.h"
#include "attend/engine/schedule/schedule_policy.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/exec/executor_info.h"
#include "attend/kv/cache_tier_stats.h"
#include "attend/kv/prefix_cache.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/model.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// Folder of a LoRA adapter, as PEFT saves it, and the name that requests use.
struct AdapterPath {
  std::string name;
  std::filesystem::path path;
};

// Tiers of the prefix cache below the pool: pages that are evicted stay in host memory and, with a directory,
// on the disk. CPUs only.
struct HierarchicalCacheOptions {
  bool enabled = false;
  double ratio = 2.0;    // pages of the host tier per page of the pool, above 0
  double size_gb = 0.0;  // bytes of the host tier / 1e9; 0: by the ratio
  HostWritePolicy write_policy = HostWritePolicy::kWriteThrough;
  // Directory of the disk tier, which servers with the same model may share; empty: none. Its files are
  // removed, least recently used first, when they exceed storage_size_gb * 1e9 bytes.
  std::filesystem::path storage_dir = {};
  double storage_size_gb = 64.0;
};

struct EngineConfig {
  std::filesystem::path model_path;  // Hugging Face model directory
  // Model to run instead of the one in model_path's config.json. Without model_path the weights are dummies
  // and there is no tokenizer.
  std::optional<ModelSpec> model;
  LoadFormat load_format = LoadFormat::kAuto;
  Device device;
  // Ranks that divide the model (tensor parallelism): on CPUs threads of this process that share its cores,
  // on GPUs the devices from `device` on.
  int tp_size = 1;
  // Longest time that a rank waits for another one. After that, or if a rank fails, requests end with an
  // error, and the engine computes no further steps.
  std::chrono::milliseconds watchdog_timeout = std::chrono::minutes(5);
  BackendOptions backend_options;  // attention backends and page size
  // Table of available attention backends, which outlives the engine: attend's table, or one with additional
  // rows, which backend_options may name. Empty: attend's table.
  std::span<const BackendEntry> backends = {};
  // Dtype of activations: float32, float16 or bfloat16. Not given: float32 on CPUs (the only one there), the
  // dtype of the weights on GPUs. With float32, a CPU may round the inputs of GEMMs with bfloat16 weights to
  // bfloat16.
  std::optional<DType> dtype;
  std::optional<DType> kv_cache_dtype;  // not given: the dtype of the weights
  int context_length = 0;               // maximum tokens of prompt and output; 0: the model's
  int max_running_requests = 0;         // 0: default
  int64_t max_total_tokens = 0;         // KV pool size in tokens; 0: derived from free memory
  // Maximum number of keys that the requests of a step attend to in total; it determines the size of backend
  // workspaces. 0: the pool size.
  int64_t max_kv_tokens = 0;
  // Models in which only some layers have a sliding window store these layers' K/V in a window half of the
  // pool, unless this is disabled. The ratio is the window half's tokens per token of the full half: above 0,
  // at most 1.
  double swa_full_tokens_ratio = 0.8;
  bool disable_hybrid_swa_memory = false;
  // Models with recurrent layers: memory of snapshots of their states per byte of the KV pool; the maximum
  // number of states, of running requests and snapshots (0: by the ratio); and the distance of snapshots in
  // prompts, in tokens (0: a snapshot has at most the bytes of the K/V of these tokens).
  double mamba_full_memory_ratio = 0.9;
  int max_mamba_cache_size = 0;
  int state_snapshot_interval = 0;
  double mem_fraction_static = 0.85;  // GPUs: share of the memory for weights and KV pool
  // GPUs: decode steps are padded to one of these batch sizes and replayed from CUDA graphs, unless this is
  // disabled. Empty: default sizes up to cuda_graph_max_bs.
  bool disable_cuda_graph = false;
  std::vector<int> cuda_graph_bs;
  int cuda_graph_max_bs = 0;  // 0: default
  // Maximum number of new tokens of a step; longer prompts are computed in chunks. 0: 2048 on GPUs; 512 on
  // CPUs, which are as fast with it and need a quarter of the activation memory.
  int chunked_prefill_size = 0;
  // Models with RoPE type longrope: a request whose text becomes longer than original_max_position_embeddings
  // is computed again with the long factors, as in transformers. Otherwise the keys of its earlier tokens
  // keep the short ones. Not with overlap_schedule or speculation.
  bool recompute_longrope = false;
  // Requests with a common prefix share its K/V (the prefix cache). The eviction policy selects the pages
  // that are evicted first when the pool is full.
  bool disable_radix_cache = false;
  EvictionPolicy radix_eviction_policy = EvictionPolicy::kLru;
  HierarchicalCacheOptions hierarchical_cache;
  // Decode steps attend once to a prefix that several of their requests share, if this is faster (cascade
  // attention).
  bool disable_cascade_attention = false;
  // Minimum number of bytes of keys and values of one layer that cascade attention has to save per step. Not
  // given: the break-even point of the device.
  std::optional<int64_t> cascade_min_bytes;
  // The host schedules and launches the next decode step while the current one runs, before its tokens are
  // known, so the device does not wait for the host. Tokens are the same. A request that stops before
  // max_new_tokens takes part in one unneeded step. Not given: enabled on GPUs.
  std::optional<bool> overlap_schedule;
  SpeculativeOptions speculation;  // speculative decoding; off unless an algorithm is set
  // Draft model to run instead of the one in speculation.draft_model_path. Without this path its weights are
  // dummies.
  std::optional<ModelSpec> draft_model;
  // LoRA adapters that requests may name (GenerationRequest::adapter), in addition to those that
  // Engine::load_adapter() adds.
  std::vector<AdapterPath> lora_paths;
  // GPUs: also records graphs of steps with adapters. Implied by lora_paths. Without them such steps are
  // slower.
  bool enable_lora = false;
  ScheduleOptions schedule;  // order and maximum number of waiting requests
  // Encoded images that are kept for later requests, in bytes.
  size_t image_cache_bytes = size_t{256} << 20;
  // The engine pools inputs into vectors (PoolingRequest) and generates no tokens. The model's head is not
  // loaded, and tokens may attend to later ones. An input is computed in one step, so its maximum length is
  // chunked_prefill_size.
  std::optional<PoolingSpec> pooling;
  // Each token is bitwise independent of other requests, batch size, chunks, preemption and thread count.
  bool deterministic_inference = false;
  bool log_kernels = false;  // log each choice of a kernel once
  uint64_t random_seed = 0;  // for requests without a seed

  bool on_gpu() const { return device.type == DeviceType::kCuda; }
};

class Engine;

// Callbacks during the construction of an engine, on the constructing thread. Each may be empty.
struct EngineProgress {
  // Called when all options are resolved and before weights are loaded; it may prepare requests. An exception
  // ends the construction.
  std::function<void(const Engine&)> resolved = {};
  LoadProgress weights;
  GraphProgress graphs;
};

}  // namespace attend
#pragma GCC visibility pop
