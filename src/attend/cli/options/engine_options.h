// Flags of an engine, in groups; a command adds the groups that it supports. Names and aliases are SGLang's.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "attend/engine/engine_config.h"
#include "attend/text/chat_template/chat_template.h"

namespace attend::cli {

struct EngineOptions {
  std::string model_name;  // --model-path as given
  std::string model_path;  // its folder
  std::string device = "auto";
  std::string load_format = "auto";
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string attention_backend, prefill_attention_backend, decode_attention_backend;
  int tp_size = 1;
  int watchdog_timeout = 300;  // seconds
  int page_size = 0;           // 0: chosen automatically; a given value is validated as given
  int context_length = 0;
  int max_running_requests = 0;
  int64_t max_total_tokens = 0;
  int64_t max_kv_tokens = 0;
  double mem_fraction_static = 0.85;
  bool disable_cuda_graph = false;
  std::vector<int> cuda_graph_bs;
  int cuda_graph_max_bs = 0;
  int chunked_prefill_size = 0;
  double swa_full_tokens_ratio = 0.8;
  double mamba_full_memory_ratio = 0.9;
  int max_mamba_cache_size = 0;
  int state_snapshot_interval = 0;
  bool disable_hybrid_swa_memory = false;
  bool recompute_longrope = false;
  bool disable_radix_cache = false;
  bool overlap_schedule = false;
  bool disable_cascade_attention = false;
  std::string speculative_algorithm;
  std::string speculative_draft_model;  // --speculative-draft-model-path as given
  std::string speculative_adaptive_config;
  std::string speculative_attention_mode = "decode";
  SpeculativeOptions speculation;       // parameters of speculation
  std::vector<std::string> lora_paths;  // --lora-paths as given
  std::string schedule_policy = "fcfs";
  double schedule_conservativeness = 1.0;
  int max_queued_requests = 0;
  std::string radix_eviction_policy = "lru";
  HierarchicalCacheOptions hierarchical_cache;  // parameters of the tiers below the pool
  std::string hicache_write_policy = "write_through";
  std::string hicache_storage_dir;
  int threads = 0;
  bool deterministic_inference = false;
  bool log_kernels = false;
  uint64_t random_seed = 0;
};

enum class ModelArgument {
  kOptional,
  kRequired,
  kPositional,  // required; may be given without its flag, as in `vllm serve`
};

// Adds --model-path, and sets both texts: the value, and the folder that find_model() returns for it.
CLI::Option* add_model_path(CLI::App& app, ModelArgument kind, std::string& name, std::string& path);

// Returns the model's template of this name, or the template of this file. Throws Error(kNotFound) if the
// folder is not a model, or has no template.
ChatTemplate require_chat_template(const std::string& model_path, const std::string& name_or_path);

// Adds flags that attention is chosen by: model, device, dtypes, backend options, graphs.
void add_choice_options(CLI::App& app, EngineOptions& options, ModelArgument model);
// Adds sizes of batches and of the KV pool.
void add_size_options(CLI::App& app, EngineOptions& options);
// Adds the flags of draft models; add_size_options() has them too.
void add_draft_model_options(CLI::App& app, EngineOptions& options);
// Adds the source of weights and the number of threads.
void add_run_options(CLI::App& app, EngineOptions& options);

// Adds --lora-paths.
void add_adapter_options(CLI::App& app, EngineOptions& options);
// Adds --lora-name: the adapter of a command's prompts.
void add_adapter_name(CLI::App& app, std::string& name);
// Returns the adapter that --lora-name names or, without it, the only one of --lora-paths; empty: none.
// Throws Error(kInvalidArgument) for a name that --lora-paths does not have.
std::string choose_adapter(const std::string& name, const std::vector<AdapterPath>& adapters);

// Adds --threads. set_threads() applies its value; 0 keeps the current number.
void add_threads(CLI::App& app, EngineOptions& options, const std::string& help);
void set_threads(int threads);

// Parses the values and sets the number of threads. Groups that the command does not have keep their
// defaults. Throws Error(kInvalidArgument) that names flag, value and accepted values.
EngineConfig to_config(const CLI::App& app, const EngineOptions& options);

}  // namespace attend::cli
