#include "attend/engine/resolve_engine.h"

#include <algorithm>
#include <limits>
#include <string>

#include "attend/backends/cascade.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/printable.h"
#include "attend/engine/require_memory.h"
#include "attend/exec/graph_runner.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/model/weight_inventory.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Chosen when the user names no number: enough to fill a device with decodes.
constexpr int kDefaultMaxRunningRequests = 32, kDefaultMaxRunningRequestsOnGpu = 256;
// New tokens of a step when the user names no number. A CPU's dense layers take 512 rows at a time anyway.
constexpr int kDefaultChunk = 512, kDefaultChunkOnGpu = 2048;
// The same of an engine that pools: inputs of a step, and their tokens unless one input has more.
constexpr int kDefaultPooledInputs = 256, kDefaultPooledTokens = 2048;
// Larger decode steps gain little from a graph.
constexpr int kDefaultMaxGraphSize = 256;
// A pool's slots are 32-bit numbers; some room for the last page and the padding page.
constexpr int64_t kMaxPoolTokens = std::numeric_limits<int32_t>::max() - 1024;
// Share of the free memory that the KV pool may take when the user names no size.
constexpr double kPoolMemoryShare = 0.5;

// What is read while a layer's attention is two launches more: by two CPU cores; by a GPU, whose steps with
// shared keys go without graphs besides.
constexpr int64_t kCpuCascadeBytes = 256 << 10, kGpuCascadeBytes = 96 << 20;

bool on_gpu(const EngineConfig& config) { return config.device.type == DeviceType::kCuda; }

// Where the weights are; empty: they are made up.
// Null: dummy weights.
std::unique_ptr<Checkpoint> checkpoint_of(const EngineConfig& config) {
  return config.load_format == LoadFormat::kDummy ? nullptr : open_checkpoint(config.model_path);
}

bool has_fp8(const EngineInfo& info) {
  return std::ranges::find(info.weight_formats, WeightStorage::kFp8, &StoredFormat::storage) !=
         info.weight_formats.end();
}

// Chosen when the user names no number.
constexpr int kDefaultDraftTokens = 12;
// More requests fill a device without drafts: of a CPU as docs/speculative-decoding.md measured it, of a GPU
// by others' figures.
constexpr int kDefaultDraftingReqs = 4, kDefaultDraftingReqsOnGpu = 32;

SpeculativeOptions choose_speculation(const EngineConfig& config) {
  SpeculativeOptions options = config.speculation;
  check(options);
  if (!options.algorithm) return options;
  if (options.num_draft_tokens == 0) options.num_draft_tokens = kDefaultDraftTokens;
  if (options.disable_by_batch_size == 0)
    options.disable_by_batch_size = on_gpu(config) ? kDefaultDraftingReqsOnGpu : kDefaultDraftingReqs;
  return options;
}

// The numbers of a config that no other choice depends on.
void check_numbers(const EngineConfig& config, const ModelSpec& model) {
  if (model.bidirectional() && !config.pooling)
    fail(ErrorCode::kUnsupported, model.architecture,
         " attends in both directions: it makes no text, but vectors (attend embed)");
  const int longest = model.max_context_len();
  if (config.pooling && config.speculation.algorithm)
    fail(ErrorCode::kUnsupported, "speculative decoding: the engine makes vectors and decodes nothing");
  const int shortest = config.pooling ? 1 : 2;
  require(
      config.context_length == 0 || (config.context_length >= shortest && config.context_length <= longest),
      "context_length ", config.context_length, ": ", shortest, " to ", longest,
      ", which is what the model's positions reach");
  require(config.max_running_requests >= 0, "max_running_requests ", config.max_running_requests,
          ": at least 1");
  require(config.max_kv_tokens >= 0, "max_kv_tokens ", config.max_kv_tokens, ": at least 1");
  require(config.max_total_tokens >= 0 && config.max_total_tokens <= kMaxPoolTokens, "max_total_tokens ",
          config.max_total_tokens, ": 1 to ", kMaxPoolTokens, ", token slots are 32-bit numbers");
  require(config.chunked_prefill_size >= 0, "chunked_prefill_size ", config.chunked_prefill_size,
          ": at least 1, or 0 for what suits the device");
  require(config.schedule.conservativeness >= 0.0, "schedule_conservativeness ",
          config.schedule.conservativeness, ": at least 0");
  require(config.schedule.max_queued_requests >= 0, "max_queued_requests ",
          config.schedule.max_queued_requests, ": at least 1, or 0 for no limit");
  require(config.swa_full_tokens_ratio > 0.0 && config.swa_full_tokens_ratio <= 1.0, "swa_full_tokens_ratio ",
          config.swa_full_tokens_ratio, ": above 0 and at most 1");
  require(config.mem_fraction_static > 0.0 && config.mem_fraction_static < 1.0, "mem_fraction_static ",
          config.mem_fraction_static, ": above 0 and below 1");
  require(config.cuda_graph_max_bs >= 0, "cuda_graph_max_bs ", config.cuda_graph_max_bs, ": at least 1");
  if (on_gpu(config) && !config.pooling && model.vocab_size > kernels::kMaxSampledVocabOnGpu)
    fail(ErrorCode::kUnsupported, "vocab_size ", model.vocab_size, ": device ", config.device,
         " chooses among at most ", kernels::kMaxSampledVocabOnGpu, " tokens");
}

DType activation_dtype(const EngineConfig& config, const ModelSpec& model) {
  const DType dtype = config.dtype.value_or(on_gpu(config) ? model.dtype : DType::kF32);
  if (!on_gpu(config) && dtype != DType::kF32)
    fail(ErrorCode::kUnsupported, "dtype ", dtype, ": activations are float32 on the CPU");
  require(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, "dtype ", dtype,
          ": expected float32, float16 or bfloat16");
  return dtype;
}

BatchLimits choose_limits(const EngineConfig& config, const EngineInfo& info) {
  const SpeculativeOptions& speculation = info.speculation;
  BatchLimits limits;
  const int default_reqs = config.pooling   ? kDefaultPooledInputs
                           : on_gpu(config) ? kDefaultMaxRunningRequestsOnGpu
                                            : kDefaultMaxRunningRequests;
  limits.max_reqs = config.max_running_requests > 0 ? config.max_running_requests : default_reqs;
  // Every running request adds at least one token to a step.
  const int default_chunk = config.pooling   ? std::max(kDefaultPooledTokens, info.context_length)
                            : on_gpu(config) ? kDefaultChunkOnGpu
                                             : kDefaultChunk;
  limits.max_tokens = std::max(config.chunked_prefill_size > 0 ? config.chunked_prefill_size : default_chunk,
                               limits.max_reqs);
  if (speculation.algorithm)
    limits.max_draft_tokens =
        std::min(limits.max_reqs, speculation.disable_by_batch_size) * (speculation.num_draft_tokens - 1);
  return limits;
}

// Bytes that a GPU can give to the KV pool: it holds the weights too, which are not loaded yet. Throws
// Error(kOutOfMemory) when a pool of two pages, or of the tokens that were asked for, does not fit.
double gpu_pool_bytes(const EngineConfig& config, double weight_bytes, double page_bytes, int page_size) {
  const auto free_bytes = static_cast<double>(available_bytes(config.device));
  const double total_bytes = static_cast<double>(cuda::device_info(config.device).total_bytes);
  const double reserved_bytes = (1.0 - config.mem_fraction_static) * total_bytes;
  const double needed_bytes =
      config.max_total_tokens > 0
          ? page_bytes * (static_cast<double>(config.max_total_tokens) / page_size + 1.0)
          : 2.0 * page_bytes + reserved_bytes;
  if (weight_bytes + needed_bytes > free_bytes)
    fail(ErrorCode::kOutOfMemory, "device ", config.device, ": needed ",
         static_cast<int64_t>(weight_bytes + needed_bytes), " bytes",
         gigabytes_suffix(weight_bytes + needed_bytes), ", ", static_cast<int64_t>(weight_bytes),
         gigabytes_suffix(weight_bytes), " of them weights, free ", static_cast<int64_t>(free_bytes),
         gigabytes_suffix(free_bytes));
  return free_bytes - weight_bytes - reserved_bytes;
}

// A half of the pool for layers with a window, where the model has such layers among others and requests can
// be longer than their windows. One request needs its window, the chunk in hand and the rest of two pages.
std::optional<SwaHalf> swa_half(const EngineConfig& config, std::span<const CacheSpec> caches,
                                const EngineInfo& info) {
  const int window = widest_window_left(caches) + 1;
  if (config.pooling || config.disable_hybrid_swa_memory || !has_window_half(caches) ||
      window >= info.context_length)
    return {};
  return SwaHalf{.full_tokens_ratio = config.swa_full_tokens_ratio,
                 .min_tokens = window + info.limits.max_tokens + 2 * info.resolution.page_size};
}

// Token slots of the KV pool, chosen by the memory there is when the user names no number. `storage` is the
// smallest.
int64_t choose_pool_tokens(const EngineConfig& config, double weight_bytes, const EngineInfo& info,
                           const CacheStorageConfig& storage) {
  const int page_size = info.resolution.page_size;
  const double host_bytes = kPoolMemoryShare * static_cast<double>(available_bytes(config.device));
  const double pool_bytes =
      on_gpu(config) ? gpu_pool_bytes(config, weight_bytes, storage.page_bytes(), page_size) : host_bytes;
  int64_t tokens = config.max_total_tokens;
  // Every input of a step may end with a page that is not full.
  if (tokens == 0 && config.pooling)
    tokens = int64_t{info.limits.max_tokens} + int64_t{info.limits.max_reqs} * page_size;
  if (tokens == 0) {
    const int64_t affordable = storage.tokens_within(pool_bytes);
    tokens = std::min({int64_t{info.limits.max_reqs} * info.context_length, affordable, kMaxPoolTokens});
  }
  if (tokens < 1)
    fail(ErrorCode::kOutOfMemory, "KV pool: needed ", storage.num_bytes(), " bytes for a page of ", page_size,
         " tokens, free for it ", static_cast<int64_t>(pool_bytes));
  return tokens;
}

// Reads of a key of one layer that attending to shared keys once must save.
int64_t cascade_min_keys(const EngineConfig& config, const EngineInfo& info, const ModelGeometry& model) {
  const auto key_bytes = static_cast<int64_t>(info.kv_token_bytes / model.layers.size());
  const int64_t min_bytes =
      config.cascade_min_bytes.value_or(on_gpu(config) ? kGpuCascadeBytes : kCpuCascadeBytes);
  return std::max<int64_t>(1, ceil_div(min_bytes, std::max<int64_t>(1, key_bytes)));
}

// Refuses sizes that do not fit into the device's memory together.
void check_memory(double weight_bytes, const EngineInfo& info, const ExecutorConfig& executor) {
  const ModelSpec& model = executor.model;
  const BatchLimits& limits = info.limits;
  const bool pools = !executor.logits;
  const auto text = [](int64_t number) { return std::to_string(number); };
  // Who makes vectors knows the longest input alone.
  const auto lower = [&](const char* flags) { return pools ? "--max-input-tokens" : flags; };
  const MemoryPart results =
      pools
          ? MemoryPart{"hidden states of " + text(limits.max_tokens) + " tokens",
                       1.0 * limits.max_tokens * model.hidden_size * static_cast<double>(size_of(info.dtype)),
                       lower("")}
          : MemoryPart{"logits of " + text(limits.max_logit_rows()) + " tokens",
                       1.0 * limits.max_logit_rows() * model.vocab_size * sizeof(float),
                       "--max-running-requests or --speculative-num-draft-tokens"};
  require_memory(
      {{"weights", weight_bytes, pools ? "--model-path" : "--dtype"},
       {"KV pool of " + text(info.pool_slots) + " tokens", static_cast<double>(info.pool_bytes),
        lower("--max-total-tokens")},
       {"table of " + text(limits.max_reqs) + " requests of " + text(info.context_length) + " tokens",
        static_cast<double>(ReqToTokenPool::num_bytes(limits.max_reqs, info.context_length)),
        lower("--max-running-requests or --context-length")},
       results,
       {"activations of " + text(limits.max_tokens) + " tokens a step",
        activation_bytes(model, limits, executor.placement),
        lower("--chunked-prefill-size or --max-running-requests")},
       {"attention workspaces of " + text(limits.max_kv_tokens) + " keys a step",
        static_cast<double>(info.workspace_bytes),
        lower("--max-kv-tokens, --max-running-requests or --chunked-prefill-size")}},
      available_bytes(info.device));
}

// The batch sizes that decode steps are padded to. A running request has a page at least. Throws
// Error(kInvalidArgument) for one that no step reaches.
std::vector<int> choose_decode_sizes(const EngineConfig& config, const BatchLimits& limits, int num_pages) {
  if (config.cuda_graph_bs.empty()) {
    const int wanted = config.cuda_graph_max_bs > 0 ? config.cuda_graph_max_bs : kDefaultMaxGraphSize;
    return default_graph_sizes(std::min({wanted, limits.max_reqs, num_pages}));
  }
  std::vector<int> sizes = config.cuda_graph_bs;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  require(sizes.front() >= 1 && sizes.back() <= limits.max_reqs, "cuda_graph_bs ",
          sizes.front() < 1 ? sizes.front() : sizes.back(), ": 1 to ", limits.max_reqs,
          ", the requests of a step");
  require(sizes.back() <= num_pages, "cuda_graph_bs ", sizes.back(), ": 1 to ", num_pages,
          ", the pages of the KV pool, of which every request takes one");
  return sizes;
}

}  // namespace

ResolvedEngine resolve_engine(const EngineConfig& config, const ModelSpec& model) {
  ResolvedEngine resolved;
  EngineInfo& info = resolved.info;
  ExecutorConfig& executor = resolved.executor;
  check_numbers(config, model);
  info.model = model.architecture;
  info.device = config.device;
  info.hardware = detect_hardware(config.device);
  info.dtype = activation_dtype(config, model);
  info.kv_cache_dtype = config.kv_cache_dtype.value_or(model.dtype);
  info.deterministic = config.deterministic_inference;
  info.schedule_policy = config.schedule.policy;
  info.overlap_schedule = config.overlap_schedule.value_or(on_gpu(config));
  info.context_length = config.context_length > 0 ? config.context_length : model.max_context_len();

  ModelGeometry geometry = model.geometry(info.dtype, info.kv_cache_dtype);
  Requirement requirement = make_requirement(geometry);
  requirement.deterministic = config.deterministic_inference;
  requirement.graphs = on_gpu(config) && !config.pooling && !config.disable_cuda_graph;
  info.speculation = choose_speculation(config);
  if (info.speculation.algorithm) requirement.speculation = Speculation::kChain;
  info.resolution = resolve(requirement, info.hardware, config.backend_options,
                            config.backends.empty() ? backend_table() : config.backends);
  if (!geometry.expanded_layers.empty() && !info.resolution.prefill->mla.contiguous) {
    geometry.expanded_layers.clear();
    info.always_absorbs = true;
  }
  info.limits = choose_limits(config, info);
  if (!config.disable_radix_cache && !config.pooling) info.prefix_cache = config.radix_eviction_policy;

  // Behind the refusals that need no file.
  const std::unique_ptr<Checkpoint> checkpoint = checkpoint_of(config);
  const WeightInventory weights(model, checkpoint.get());
  info.quantization = model.quantization;
  info.weight_formats = weights.formats();
  // On the CPU most weights are mapped from their files.
  const auto weight_bytes =
      static_cast<double>(on_gpu(config) ? weights.device_bytes(info.dtype) : weights.copied_bytes());
  // Such a model rounds there by itself; who names a dtype has all of it.
  info.rounds_x = !config.dtype && (on_gpu(config) ? model.quantization.rounds_x && has_fp8(info)
                                                   : model.dtype == DType::kBF16 && kernels::cpu_rounds_x());

  const int page_size = info.resolution.page_size;
  const std::vector<CacheSpec> caches = model.caches();
  CacheStorageConfig& storage = executor.storage;
  storage = make_cache_storage_config(caches, page_size, info.kv_cache_dtype, info.device,
                                      swa_half(config, caches, info));
  info.kv_token_bytes = storage.token_bytes();
  const int64_t tokens = choose_pool_tokens(config, weight_bytes, info, storage);
  resolved.num_pages = static_cast<int>(ceil_div(tokens, int64_t{page_size}) + 1);  // the padding page
  storage.num_pages = resolved.num_pages;
  info.pool_bytes = storage.num_bytes();
  info.pool_slots = (resolved.num_pages - 1) * page_size;
  info.swa_pool_slots = std::max(0, storage.num_window_pages() - 1) * page_size;
  // More than all requests together can hold bounds nothing.
  const int64_t most_kv_tokens = int64_t{info.limits.max_reqs} * info.context_length;
  info.limits.max_kv_tokens =
      config.max_kv_tokens > 0 ? std::min(config.max_kv_tokens, most_kv_tokens) : info.pool_slots;

  geometry.max_context_len = info.context_length;
  executor.backend = {.device = config.device,
                      .model = geometry,
                      .limits = info.limits,
                      .page_size = page_size,
                      .deterministic = config.deterministic_inference};
  // Requests share keys by the prefix cache alone. Places in the table of their rows are int32. A backend to
  // check others by attends to every request on its own.
  const int64_t num_places = int64_t{info.limits.max_reqs + 1} * info.context_length;
  executor.backend.cascade = info.prefix_cache.has_value() && !config.disable_cascade_attention &&
                             num_places <= std::numeric_limits<int32_t>::max() &&
                             !info.resolution.decode->slow;
  if (Cascade::applies_to(executor.backend))
    info.cascade_min_keys = cascade_min_keys(config, info, geometry);
  else
    executor.backend.cascade = false;
  info.workspace_bytes = workspace_bytes(info.resolution, executor.backend);
  executor.model = model;
  executor.placement = {.device = info.device,
                        .dtype = info.dtype,
                        .batch_invariant = info.deterministic,
                        .rounds_x = info.rounds_x};
  executor.resolution = info.resolution;
  executor.has_prefix_info = !info.always_absorbs;
  executor.logits = !config.pooling;
  executor.hidden_states = config.pooling.has_value();
  check_memory(weight_bytes, info, executor);
  if (on_gpu(config) && !config.pooling)
    executor.decode_sizes = choose_decode_sizes(config, info.limits, resolved.num_pages - 1);
  return resolved;
}

}  // namespace attend
