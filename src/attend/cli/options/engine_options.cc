#include "attend/cli/options/engine_options.h"

#include <charconv>
#include <filesystem>
#include <thread>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/parallel.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"
#include "attend/checkpoint/model_folder.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/flags.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/tensor/cuda.h"
#include "attend/tensor/driver_version.h"

namespace attend::cli {
namespace {

Device parse_device(const std::string& name) {
  constexpr std::string_view kCuda = "cuda:";
  if (name == "auto") return {cuda::device_count() > 0 ? DeviceType::kCuda : DeviceType::kCpu, 0};
  if (name == "cpu") return {DeviceType::kCpu, 0};
  if (name == "cuda") return {DeviceType::kCuda, 0};
  int index = 0;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kCuda))
    if (const auto [rest, error] = std::from_chars(name.data() + kCuda.size(), end, index);
        error == std::errc() && rest == end && index >= 0) {
      const Device device{DeviceType::kCuda, index};
      // Without a GPU, the driver's error is the cause.
      if (const int num_gpus = cuda::device_count(); num_gpus > 0)
        cuda::require_gpu(device, num_gpus, "--device");
      return device;
    }
  fail(ErrorCode::kInvalidArgument, "--device ", name, ": expected auto, cpu, cuda or cuda:N");
}

LoadFormat parse_load_format(const std::string& name, const std::filesystem::path& model) {
  const std::string_view format = model.extension() == kGgufExtension ? "gguf" : "safetensors";
  if (name == "auto" || name == format) return LoadFormat::kAuto;
  if (name == "dummy") return LoadFormat::kDummy;
  fail(ErrorCode::kInvalidArgument, "--load-format ", name, ": expected auto, ", format, " or dummy");
}

// Groups of flags in help.
constexpr const char *kModelFlags = "Model", *kAttentionFlags = "Attention", *kGpuFlags = "GPUs",
                     *kBatchFlags = "Batches and memory", *kCacheFlags = "Prefix cache";

// Ranges of flags. 0 means "chosen automatically" and cannot be passed.
constexpr Range<int> kPositive{.lowest = 1};
constexpr Range<int64_t> kPositive64{.lowest = 1};

// `accepted`: values that the flag accepts on this device.
DType parse_dtype_flag(const char* flag, const std::string& name, const char* accepted) {
  try {
    return parse_dtype(name);
  } catch (const Error&) {
    fail(ErrorCode::kInvalidArgument, flag, " '", name, "': expected ", accepted);
  }
}

DType parse_kv_cache_dtype(const std::string& name) {
  try {
    return kernels::parse_cache_dtype(name);
  } catch (const Error&) {
    fail(ErrorCode::kInvalidArgument, "--kv-cache-dtype '", name, "': expected auto, ",
         kernels::kCacheDTypeNames);
  }
}

// Options of drafts, and the algorithm that has them. None: all algorithms.
struct SpeculativeFlag {
  const char* flag;
  std::optional<SpeculativeAlgorithm> algorithm;
};
constexpr SpeculativeFlag kSpeculativeFlags[] = {
    {"--speculative-num-draft-tokens", {}},
    {"--speculative-disable-by-batch-size", {}},
    // The engine checks that the algorithm has a draft model.
    {"--speculative-draft-model-path", {}},
    {"--speculative-draft-attention-backend", {}},
    {"--speculative-num-steps", {}},
    {"--speculative-eagle-topk", {}},
    {"--speculative-attention-mode", {}},
    {"--speculative-adaptive", {}},
    {"--speculative-adaptive-config", {}},
    {"--speculative-ngram-max-match-window-size", SpeculativeAlgorithm::kNgram},
    {"--speculative-ngram-min-match-window-size", SpeculativeAlgorithm::kNgram},
    {"--speculative-suffix-max-tree-depth", SpeculativeAlgorithm::kSuffix},
    {"--speculative-suffix-max-cached-requests", SpeculativeAlgorithm::kSuffix},
    {"--speculative-suffix-max-spec-factor", SpeculativeAlgorithm::kSuffix},
    {"--speculative-suffix-min-token-prob", SpeculativeAlgorithm::kSuffix},
};

SpeculativeOptions to_speculation(const CLI::App& app, const EngineOptions& options) {
  SpeculativeOptions speculation = options.speculation;
  if (!options.speculative_draft_model.empty())
    speculation.draft_model_path = find_model(options.speculative_draft_model);
  speculation.adaptive_config = options.speculative_adaptive_config;
  require(options.speculative_attention_mode == "decode" || options.speculative_attention_mode == "prefill",
          "--speculative-attention-mode ", options.speculative_attention_mode,
          ": expected decode or prefill");
  if (options.speculative_attention_mode == "prefill") speculation.attention_mode = Phase::kPrefill;
  if (!options.speculative_algorithm.empty())
    speculation.algorithm = parse_speculative_algorithm(options.speculative_algorithm);
  for (const auto& [flag, algorithm] : kSpeculativeFlags) {
    require(speculation.algorithm || !given(app, flag), flag, ": requires --speculative-algorithm");
    require(!algorithm || speculation.algorithm == algorithm || !given(app, flag), flag,
            ": no effect with --speculative-algorithm ", options.speculative_algorithm);
  }
  return speculation;
}

// Flags that have no effect with another one.
struct FlagWithoutEffect {
  const char* flag;
  const char* other;
};
constexpr FlagWithoutEffect kFlagsWithoutEffect[] = {
    {"--cuda-graph-bs", "--disable-cuda-graph"},
    {"--cuda-graph-max-bs", "--disable-cuda-graph"},
    {"--cuda-graph-max-bs", "--cuda-graph-bs"},
    {"--swa-full-tokens-ratio", "--disable-hybrid-swa-memory"},
    {"--radix-eviction-policy", "--disable-radix-cache"},
    {"--mamba-full-memory-ratio", "--disable-radix-cache"},
    {"--mamba-full-memory-ratio", "--max-mamba-cache-size"},
    {"--state-snapshot-interval", "--disable-radix-cache"},
    {"--enable-hierarchical-cache", "--disable-radix-cache"},
    {"--hicache-ratio", "--hicache-size"},
    {"--allowed-hosts", "--unix-socket"},
    {"--host", "--unix-socket"},
    {"--port", "--unix-socket"},
};

// Flags of the tiers below the pool.
constexpr const char* kHicacheFlags[] = {"--hicache-ratio", "--hicache-size", "--hicache-write-policy",
                                         "--hicache-storage-dir", "--hicache-storage-size"};

void reject_flags_without_effect(const CLI::App& app) {
  for (const auto& [flag, other] : kFlagsWithoutEffect)
    require(!given(app, flag) || !given(app, other), flag, ": no effect with ", other);
  require(!given(app, "--attention-backend") || !given(app, "--prefill-attention-backend") ||
              !given(app, "--decode-attention-backend"),
          "--attention-backend: no effect with --prefill-attention-backend and --decode-attention-backend");
}

// Warns about flags that have no effect on a CPU.
void warn_about_gpu_flags(const CLI::App& app) {
  for (const char* flag :
       {"--mem-fraction-static", "--disable-cuda-graph", "--cuda-graph-bs", "--cuda-graph-max-bs"})
    if (given(app, flag)) log_warning(flag, ": ignored; only for GPUs, and the device is cpu");
}

// Adds the flags of drafts without a model.
void add_lookup_options(CLI::App& app, EngineOptions& options) {
  SpeculativeOptions& numbers = options.speculation;
  add_number(app, "--speculative-ngram-max-match-window-size,--ngram-prompt-lookup-max",
             numbers.ngram_max_match_window_size, "NGRAM: maximum number of last tokens to match", kPositive);
  add_number(app, "--speculative-ngram-min-match-window-size,--ngram-prompt-lookup-min",
             numbers.ngram_min_match_window_size, "NGRAM: minimum number of last tokens to match", kPositive);
  SuffixOptions& suffix = numbers.suffix;
  add_number(app, "--speculative-suffix-max-tree-depth,--suffix-decoding-max-tree-depth",
             suffix.max_tree_depth, "SUFFIX: matched and drafted tokens together, at most",
             Range<int>{.lowest = 2, .highest = 256});
  add_number(app, "--speculative-suffix-max-cached-requests,--suffix-decoding-max-cached-requests",
             suffix.max_cached_requests, "SUFFIX: requests with outputs that are kept; 0: none",
             Range<int>{.lowest = 0});
  add_number(app, "--speculative-suffix-max-spec-factor,--suffix-decoding-max-spec-factor",
             suffix.max_spec_factor, "SUFFIX: drafted tokens per matched token, at most");
  add_number(app, "--speculative-suffix-min-token-prob,--suffix-decoding-min-token-prob",
             suffix.min_token_prob, "SUFFIX: minimum estimated probability of a draft");
}

}  // namespace

CLI::Option* add_model_path(CLI::App& app, ModelArgument kind, std::string& name, std::string& path) {
  return app
      .add_option_function<std::string>(
          kind == ModelArgument::kPositional ? "--model-path,--model,-m,MODEL" : "--model-path,--model,-m",
          [&name, &path](const std::string& text) {
            require(!text.empty(), "--model-path '': expected a non-empty text");
            name = text;
            path = find_model(text).string();
          },
          "Hugging Face model directory, GGUF file, or ORG/MODEL in the Hugging Face cache (hf download "
          "ORG/MODEL)")
      ->type_name("MODEL")
      ->required(kind != ModelArgument::kOptional);
}

ChatTemplate require_chat_template(const std::string& model_path, const std::string& name_or_path) {
  if (auto chat = ChatTemplate::find(model_path, name_or_path)) return *std::move(chat);
  (void)open_checkpoint(model_path)->config();  // a folder that is not a model is the first thing to report
  fail(ErrorCode::kNotFound, model_path, ": has no chat template",
       note_on_missing(MissingFile::kChatTemplate, model_path), "; pass one with --chat-template");
}

void add_choice_options(CLI::App& app, EngineOptions& options, ModelArgument model) {
  set_group(app, kModelFlags);
  add_model_path(app, model, options.model_name, options.model_path);
  add_text(app, "--device", options.device, "auto (a GPU if available), cpu, cuda or cuda:N");
  add_text(
      app, "--dtype", options.dtype,
      "dtype of activations: auto (the weights' dtype on a GPU; float32 on the CPU, rounded before bfloat16 "
      "weights if the CPU has AVX-512-BF16 but no AMX), float32; on GPUs also float16 or bfloat16");
  set_group(app, kAttentionFlags);
  add_text(app, "--attention-backend", options.attention_backend,
           "attention backend of both phases (see: attend backends)");
  add_text(app, "--prefill-attention-backend", options.prefill_attention_backend,
           "prefill backend; overrides --attention-backend");
  add_text(app, "--decode-attention-backend", options.decode_attention_backend,
           "decode backend; overrides --attention-backend");
  add_number(app, "--page-size,--block-size", options.page_size,
             "tokens per KV page: 1, 2, 4, ... 256; default: the size that the backends prefer, 64 on a CPU",
             Range<int>{.lowest = 1, .highest = 256});
  add_text(app, "--kv-cache-dtype", options.kv_cache_dtype,
           "auto (the weights' dtype), float32, float16, bfloat16, fp8_e4m3 (or fp8), fp8_e5m2, or for "
           "latent attention fp8_ds_mla (rows of 656 bytes with inline scales)");
  app.add_flag("--enable-deterministic-inference", options.deterministic_inference,
               "results of a request do not depend on batch, chunks or preemption, bit for bit");
  set_group(app, kGpuFlags);
  app.add_flag("--disable-cuda-graph,--disable-decode-cuda-graph", options.disable_cuda_graph,
               "launch kernels of decode steps without CUDA graphs");
  add_numbers(app, "--cuda-graph-bs,--cuda-graph-bs-decode", options.cuda_graph_bs,
              "1 to --max-running-requests",
              "decode batch sizes captured as CUDA graphs, such as 1,2,4; smaller batches are padded");
  add_number(app, "--cuda-graph-max-bs,--cuda-graph-max-bs-decode", options.cuda_graph_max_bs,
             "largest captured batch size if --cuda-graph-bs is not given; default: 256", kPositive);
  app.add_flag("--enable-overlap-schedule,!--disable-overlap-schedule", options.overlap_schedule,
               "schedule a decode step while the previous one is computed, or not; default: on GPUs");
}

void add_size_options(CLI::App& app, EngineOptions& options) {
  set_group(app, kBatchFlags);
  add_number(app, "--context-length,--max-model-len,--ctx-size,-c", options.context_length,
             "maximum tokens of a request, prompt and completion; 0: the model's maximum; default: 0",
             Range<int>{.lowest = 0});
  app.add_flag(
      "--recompute-longrope", options.recompute_longrope,
      "models with RoPE type longrope: compute a request again with the long factors when it becomes "
      "longer than the original length, as transformers does");
  add_number(app, "--max-running-requests,--max-num-seqs", options.max_running_requests,
             "maximum number of requests per step; default: 32 on a CPU, 256 on a GPU", kPositive);
  add_number(app, "--max-total-tokens", options.max_total_tokens,
             "size of the KV pool in tokens, a multiple of the page size; default: from the available memory",
             kPositive64);
  add_number(
      app, "--max-kv-tokens", options.max_kv_tokens,
      "maximum number of keys that the requests of a step attend to in total; default: the KV pool's tokens",
      kPositive64);
  add_number(app, "--chunked-prefill-size", options.chunked_prefill_size,
             "maximum number of new tokens per step; longer prompts are computed in chunks; default: 2048 on "
             "GPUs, 512 on CPUs",
             kPositive);
  add_text(app, "--schedule-policy", options.schedule_policy,
           "order of waiting requests: fcfs (first come, first served), lpm (longest cached prefix first), "
           "lof (longest max_tokens first) or priority");
  add_number(app, "--schedule-conservativeness", options.schedule_conservativeness,
             "higher values reserve more tokens per request: fewer concurrent requests, fewer preemptions");
  add_number(app, "--max-queued-requests", options.max_queued_requests,
             "maximum number of waiting completions; further requests get status 503; default: no limit",
             kPositive);
  set_group(app, kCacheFlags);
  app.add_flag("--disable-radix-cache,--no-enable-prefix-caching", options.disable_radix_cache,
               "disable the prefix cache: requests with a common prefix compute it again");
  add_text(app, "--radix-eviction-policy", options.radix_eviction_policy,
           "order of evicting cached prefixes when the pool is full: lru, lfu or priority");
  app.add_flag("--enable-hierarchical-cache", options.hierarchical_cache.enabled,
               "CPUs: keep evicted pages of the prefix cache in host memory, beyond the pool");
  add_number(app, "--hicache-ratio", options.hierarchical_cache.ratio,
             "size of the host tier as a multiple of the pool");
  add_number(app, "--hicache-size", options.hierarchical_cache.size_gb,
             "size of the host tier in gigabytes; default: by --hicache-ratio");
  add_text(
      app, "--hicache-write-policy", options.hicache_write_policy,
      "when pages are copied to the host tier: write_through (when they are computed) or write_back (when "
      "they are evicted)");
  add_text(app, "--hicache-storage-dir", options.hicache_storage_dir,
           "directory of the disk tier below the host tier, which survives restarts; servers with the same "
           "model may share it");
  add_number(app, "--hicache-storage-size", options.hierarchical_cache.storage_size_gb,
             "maximum size of the directory in gigabytes");
  add_number(app, "--swa-full-tokens-ratio", options.swa_full_tokens_ratio,
             "models with sliding-window layers: tokens of their half of the KV pool per token of the full "
             "half; at least one request's window and chunk");
  app.add_flag("--disable-hybrid-swa-memory", options.disable_hybrid_swa_memory,
               "sliding-window layers keep all tokens, like full layers");
  add_number(app, "--mamba-full-memory-ratio", options.mamba_full_memory_ratio,
             "models with recurrent layers: bytes of state snapshots per byte of the KV pool");
  add_number(app, "--max-mamba-cache-size", options.max_mamba_cache_size,
             "models with recurrent layers: number of states, of running requests and snapshots; default: by "
             "--mamba-full-memory-ratio",
             kPositive);
  add_number(app, "--state-snapshot-interval", options.state_snapshot_interval,
             "models with recurrent layers: tokens between snapshots of a prompt's state, a multiple of the "
             "page size; default: a snapshot has at most the bytes of the K/V of these tokens",
             kPositive);
  set_group(app, kAttentionFlags);
  app.add_flag("--disable-cascade-attention,--disable-cascade-attn", options.disable_cascade_attention,
               "CPUs: compute attention over a shared prefix separately for each request");
  set_group(app, kGpuFlags);
  add_number(app, "--mem-fraction-static", options.mem_fraction_static,
             "fraction of memory for weights and KV pool");
  add_draft_model_options(app, options);
  add_lookup_options(app, options);
}

void add_draft_model_options(CLI::App& app, EngineOptions& options) {
  SpeculativeOptions& numbers = options.speculation;
  set_group(app, "Speculative decoding");
  add_text(
      app, "--speculative-algorithm", options.speculative_algorithm,
      "draft tokens and verify several in one step: NGRAM (drafts what followed an earlier occurrence "
      "of the last tokens), SUFFIX (drafts the most frequent continuation, in the request's text and in "
      "outputs of other requests), STANDALONE (a smaller model with the same vocabulary drafts), EAGLE3, "
      "EAGLE or NEXTN (a draft head reads the model's hidden states); answers do not change");
  add_text(app, "--speculative-draft-model-path,--speculative-draft-model", options.speculative_draft_model,
           "draft model or draft head, as --model-path; EAGLE, NEXTN: default the model itself");
  add_text(app, "--speculative-draft-attention-backend", numbers.draft_attention_backend,
           "attention backend of the draft model; default: chosen by device");
  add_text(
      app, "--speculative-attention-mode", options.speculative_attention_mode,
      "backend that verifies drafts, if prefill and decode have different ones: decode or prefill; default: "
      "decode");
  add_number(app, "--speculative-num-steps", numbers.num_steps,
             "tokens that a draft model drafts per request and step; default: 5 for LlamaForCausalLM, else 3",
             Range<int>{.lowest = 1, .highest = 63});
  add_number(app, "--speculative-eagle-topk", numbers.eagle_topk,
             "draft models: candidates per drafted token; above 1, drafts are trees; default: 1", kPositive);
  app.add_flag("--speculative-adaptive", numbers.adaptive,
               "draft models: the number of steps follows batch size and acceptance, down to none");
  add_text(
      app, "--speculative-adaptive-config", options.speculative_adaptive_config,
      "JSON file with numbers of steps by batch size, as in SGLang; default: up to 7 at batch 1, 3 at 8, 1 "
      "at 32, none from 64 on");
  add_number(app, "--speculative-num-draft-tokens", numbers.num_draft_tokens,
             "tokens verified per request and step, including the last generated one; default: 12, "
             "what SUFFIX's longest draft needs, or the number of a draft model's steps and 1; trees: 8",
             Range<int>{.lowest = 2, .highest = 64});
  add_number(app, "--speculative-disable-by-batch-size", numbers.disable_by_batch_size,
             "no drafts in steps with more generating requests; default: 4 on a CPU, 32 on a GPU", kPositive);
}

void add_run_options(CLI::App& app, EngineOptions& options) {
  set_group(app, kModelFlags);
  add_text(app, "--load-format", options.load_format, "auto, safetensors, gguf, or dummy (random weights)");
  add_threads(app, options, "CPU threads; default: one per core that this process may use");
  add_number(app, "--tp-size,--tensor-parallel-size,--tp", options.tp_size,
             "ranks that divide the model (tensor parallelism): GPUs from --device on, or groups of CPU "
             "threads; default: 1",
             kPositive);
  add_number(app, "--watchdog-timeout", options.watchdog_timeout,
             "seconds that a rank waits for another one before the engine fails; default: 300", kPositive);
  app.add_flag("--log-kernels", options.log_kernels,
               "log the kernel chosen for each operation, once per choice");
}

void add_adapter_options(CLI::App& app, EngineOptions& options) {
  set_group(app, kModelFlags);
  app.add_option("--lora-paths,--lora-modules", options.lora_paths,
                 "LoRA adapters that PEFT saved: NAME=FOLDER, one or several");
}

void add_adapter_name(CLI::App& app, std::string& name) {
  set_group(app, kModelFlags);
  add_text(app, "--lora-name", name,
           "adapter of the prompts; default: the one of --lora-paths, if it has only one");
}

std::string choose_adapter(const std::string& name, const std::vector<AdapterPath>& adapters) {
  if (name.empty()) return adapters.size() == 1 ? adapters.front().name : "";
  std::string names;
  for (const AdapterPath& adapter : adapters) {
    if (adapter.name == name) return name;
    names += (names.empty() ? "" : ", ") + adapter.name;
  }
  fail(ErrorCode::kInvalidArgument, "--lora-name ", name,
       ": expected a name that --lora-paths has: ", names.empty() ? "none" : names);
}

void add_threads(CLI::App& app, EngineOptions& options, const std::string& help) {
  add_number(app, "--threads,-t", options.threads, help,
             Range<int>{.lowest = 1, .highest = ThreadTeam::kMaxThreads});
}

void set_threads(int threads) {
  if (threads > 0) set_num_threads(threads);
}

namespace {

// Parses NAME=FOLDER, and the JSON objects of SGLang and vLLM: {"lora_name": ..., "lora_path": ...} and
// {"name": ..., "path": ...}.
AdapterPath parse_adapter(const std::string& text) {
  std::string name, folder;
  if (text.starts_with('{')) {
    const JsonNode json(parse_json(text, "--lora-paths"), "--lora-paths");
    const bool is_sglang = json.has("lora_name");
    name = json.at(is_sglang ? "lora_name" : "name").string();
    folder = json.at(is_sglang ? "lora_path" : "path").string();
  } else {
    const size_t end = text.find('=');
    require(end != std::string::npos, "--lora-paths '", text, "': expected NAME=FOLDER");
    name = text.substr(0, end);
    folder = text.substr(end + 1);
  }
  require(!name.empty() && !folder.empty(), "--lora-paths '", text, "': expected NAME=FOLDER");
  return {.name = name, .path = folder};
}

}  // namespace

EngineConfig to_config(const CLI::App& app, const EngineOptions& options) {
  reject_flags_without_effect(app);
  set_threads(options.threads);

  EngineConfig config;
  config.model_path = options.model_path;
  config.load_format = parse_load_format(options.load_format, options.model_path);
  // Before the first use of CUDA.
  if (options.tp_size > 1) cuda::load_kernels_eagerly();
  config.device = parse_device(options.device);
  config.tp_size = options.tp_size;
  config.watchdog_timeout = std::chrono::seconds(options.watchdog_timeout);
  const bool on_gpu = config.device.type == DeviceType::kCuda;
  if (!on_gpu) warn_about_gpu_flags(app);
  config.backend_options.attention_backend = options.attention_backend;
  config.backend_options.prefill_backend = options.prefill_attention_backend;
  config.backend_options.decode_backend = options.decode_attention_backend;
  if (given(app, "--page-size")) config.backend_options.page_size = options.page_size;
  if (options.dtype != "auto")
    config.dtype = parse_dtype_flag(
        "--dtype", options.dtype, on_gpu ? "auto, float32, float16 or bfloat16" : "auto or float32 on a CPU");
  if (options.kv_cache_dtype != "auto") config.kv_cache_dtype = parse_kv_cache_dtype(options.kv_cache_dtype);
  config.context_length = options.context_length;
  config.max_running_requests = options.max_running_requests;
  config.max_total_tokens = options.max_total_tokens;
  config.max_kv_tokens = options.max_kv_tokens;
  if (on_gpu) {
    config.mem_fraction_static = options.mem_fraction_static;
    config.disable_cuda_graph = options.disable_cuda_graph;
    config.cuda_graph_bs = options.cuda_graph_bs;
    config.cuda_graph_max_bs = options.cuda_graph_max_bs;
  }
  config.chunked_prefill_size = options.chunked_prefill_size;
  config.speculation = to_speculation(app, options);
  config.schedule = {.policy = parse_schedule_policy(options.schedule_policy),
                     .conservativeness = options.schedule_conservativeness,
                     .max_queued_requests = options.max_queued_requests};
  for (const std::string& text : options.lora_paths) config.lora_paths.push_back(parse_adapter(text));
  config.swa_full_tokens_ratio = options.swa_full_tokens_ratio;
  config.disable_hybrid_swa_memory = options.disable_hybrid_swa_memory;
  config.mamba_full_memory_ratio = options.mamba_full_memory_ratio;
  config.max_mamba_cache_size = options.max_mamba_cache_size;
  config.state_snapshot_interval = options.state_snapshot_interval;
  config.recompute_longrope = options.recompute_longrope;
  config.disable_radix_cache = options.disable_radix_cache;
  if (given(app, "--enable-overlap-schedule")) config.overlap_schedule = options.overlap_schedule;
  if (options.disable_radix_cache && config.schedule.policy == SchedulePolicy::kLpm)
    log_warning("--schedule-policy lpm: same as fcfs with --disable-radix-cache");
  config.radix_eviction_policy = parse_eviction_policy(options.radix_eviction_policy);
  for (const char* flag : kHicacheFlags)
    require(options.hierarchical_cache.enabled || !given(app, flag), flag,
            ": requires --enable-hierarchical-cache");
  config.hierarchical_cache = options.hierarchical_cache;
  config.hierarchical_cache.write_policy = parse_host_write_policy(options.hicache_write_policy);
  config.hierarchical_cache.storage_dir = options.hicache_storage_dir;
  config.disable_cascade_attention = options.disable_cascade_attention;
  config.deterministic_inference = options.deterministic_inference;
  config.log_kernels = options.log_kernels;
  config.random_seed = options.random_seed;
  return config;
}

}  // namespace attend::cli
