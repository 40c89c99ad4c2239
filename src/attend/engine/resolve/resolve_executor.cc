#include "attend/engine/resolve/resolve_executor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attend/backends/cascade.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/model/config/rank_spec.h"
#include "attend/model/weight_inventory.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

// Bytes that two CPU cores, or a GPU, read in the time of two additional launches per layer. On a GPU, steps
// with shared keys also run without graphs.
constexpr int64_t kCpuCascadeBytes = 256 << 10, kGpuCascadeBytes = 96 << 20;

bool has_fp8(const ExecutorInfo& info) {
  return std::ranges::find(info.weight_formats, WeightStorage::kFp8, &StoredFormat::storage) !=
         info.weight_formats.end();
}

DType activation_dtype(const EngineConfig& config, const ModelSpec& model) {
  const DType dtype = config.dtype.value_or(config.on_gpu() ? model.dtype : DType::kF32);
  if (!config.on_gpu() && dtype != DType::kF32)
    fail(ErrorCode::kUnsupported, "dtype ", dtype, ": expected float32 on the CPU");
  require(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, "dtype ", dtype,
          ": expected float32, float16 or bfloat16");
  return dtype;
}

Resolution resolve_backends(const EngineConfig& config, const ModelGeometry& geometry,
                            const Hardware& hardware, std::optional<int> page_size) {
  Requirement requirement = make_requirement(geometry);
  requirement.deterministic = config.deterministic_inference;
  requirement.graphs = config.on_gpu() && !config.pooling && !config.disable_cuda_graph;
  if (config.speculation.algorithm)
    requirement.speculation = config.speculation.eagle_topk > 1 ? Speculation::kTree : Speculation::kChain;
  BackendOptions options = config.backend_options;
  if (page_size) options.page_size = page_size;
  Resolution resolution =
      resolve(requirement, hardware, options, config.backends.empty() ? backend_table() : config.backends);
  const bool verifies_in_prefill =
      config.speculation.algorithm && config.speculation.attention_mode == Phase::kPrefill;
  if (verifies_in_prefill && requirement.graphs && !resolution.prefill->capability(requirement.kind).graphs)
    fail(ErrorCode::kUnsupported, "speculative_attention_mode prefill: ", resolution.prefill->name,
         " does not support CUDA graphs; expected decode, or no graphs");
  return resolution;
}

// Returns the pool size of sliding-window layers, if the model also has other layers and requests can exceed
// the window. One request needs its window, a chunk, and the remainders of two pages.
std::optional<SwaHalf> swa_half(const EngineConfig& config, std::span<const CacheSpec> caches,
                                const SharedSizes& sizes, int page_size) {
  const int window = widest_window_left(caches) + 1;
  if (config.pooling || config.disable_hybrid_swa_memory || !has_window_half(caches) ||
      window >= sizes.context_length)
    return {};
  return SwaHalf{.full_tokens_ratio = config.swa_full_tokens_ratio,
                 .min_tokens = window + sizes.limits.max_tokens + 2 * page_size};
}

// Requests share keys only through the prefix cache. Indices into the table of their rows are int32.
// Reference backends attend to each request separately.
bool may_cascade(const EngineConfig& config, const Resolution& resolution, const SharedSizes& sizes) {
  const int64_t num_places = int64_t{sizes.limits.max_reqs + 1} * sizes.context_length;
  return !config.pooling && !config.disable_radix_cache && !config.disable_cascade_attention &&
         num_places <= std::numeric_limits<int32_t>::max() && !resolution.decode->slow;
}

// Minimum number of key reads per layer that attending to shared keys once must save.
int64_t cascade_min_keys(const EngineConfig& config, size_t kv_token_bytes, const ModelGeometry& model) {
  const auto key_bytes = static_cast<int64_t>(kv_token_bytes / model.layers.size());
  const int64_t min_bytes =
      config.cascade_min_bytes.value_or(config.on_gpu() ? kGpuCascadeBytes : kCpuCascadeBytes);
  return std::max<int64_t>(1, ceil_div(min_bytes, std::max<int64_t>(1, key_bytes)));
}

// Counts the weights of a rank. If ranks would split a group of quantized weights, adds the numbers of ranks
// that do not.
WeightInventory count_weights(const ModelSpec& model, const Checkpoint* checkpoint,
                              const ModelPlacement& placement) {
  try {
    return WeightInventory(model, checkpoint, placement);
  } catch (const Error& error) {
    if (placement.num_ranks == 1 || error.code() != ErrorCode::kUnsupported) throw;
    std::string possible;
    constexpr int kMaxListedRanks = 16;
    for (int size = 1; size <= kMaxListedRanks; ++size) {
      try {
        WeightInventory(model, checkpoint, {.rank = size - 1, .num_ranks = size});
        possible += (possible.empty() ? "" : ", ") + std::to_string(size);
      } catch (const Error&) {  // another size may be possible
      }
    }
    if (possible.empty()) throw;
    fail(ErrorCode::kUnsupported, "tp_size ", placement.num_ranks, ": ", error.what(),
         "; possible: ", possible);
  }
}

}  // namespace

ResolvedExecutor resolve_executor(const EngineConfig& config, const ModelSpec& model,
                                  std::shared_ptr<const Checkpoint> checkpoint, const SharedSizes& sizes) {
  ResolvedExecutor resolved;
  ExecutorInfo& info = resolved.info;
  ExecutorConfig& executor = resolved.config;
  if (config.on_gpu()) require_gpu_weights(model.quantization);
  const ModelSpec of_rank = rank_spec(model, config.tp_size);
  info.model = model.architecture;
  info.device = config.device;
  info.rank = sizes.rank;
  info.num_ranks = config.tp_size;
  if (config.on_gpu()) info.device.index += sizes.rank;
  info.hardware = detect_hardware(info.device);
  info.dtype = activation_dtype(config, model);
  info.kv_cache_dtype = config.kv_cache_dtype.value_or(model.dtype);
  ModelGeometry geometry = of_rank.geometry(info.dtype, info.kv_cache_dtype);
  info.resolution = resolve_backends(config, geometry, info.hardware, sizes.page_size);
  if (!geometry.expanded_layers.empty() && !info.resolution.prefill->mla.contiguous) {
    geometry.expanded_layers.clear();
    info.always_absorbs = true;
  }

  // Reads files only after the checks that need none.
  executor.placement = {
      .device = info.device, .dtype = info.dtype, .rank = sizes.rank, .num_ranks = config.tp_size};
  const WeightInventory weights = count_weights(model, checkpoint.get(), executor.placement);
  info.quantization = model.quantization;
  info.weight_formats = weights.formats();
  // On the CPU most weights are mapped from their files.
  resolved.weight_bytes =
      static_cast<double>(config.on_gpu() ? weights.device_bytes(info.dtype) : weights.copied_bytes());
  // A given dtype disables the rounding that the weights' format allows.
  info.rounds_x =
      !config.dtype && (config.on_gpu() ? model.quantization.rounds_x && has_fp8(info)
                                        : rounds_x_to_int8(info.weight_formats) ||
                                              (model.dtype == DType::kBF16 && kernels::cpu_rounds_x()));

  const int page_size = info.resolution.page_size;
  const std::vector<CacheSpec> caches = of_rank.caches();
  executor.storage = make_cache_storage_config(caches, page_size, info.kv_cache_dtype, info.device,
                                               swa_half(config, caches, sizes, page_size));
  info.kv_token_bytes = executor.storage.token_bytes();
  executor.storage.states.dtype = info.dtype;
  info.state_bytes = executor.storage.states.slot_bytes();

  geometry.max_context_len = sizes.context_length;
  executor.backend = {.device = info.device,
                      .model = geometry,
                      .limits = sizes.limits,
                      .page_size = page_size,
                      .deterministic = config.deterministic_inference,
                      .verify_phase = config.speculation.attention_mode,
                      .cascade = may_cascade(config, info.resolution, sizes)};
  executor.backend.cascade = Cascade::applies_to(executor.backend);
  if (executor.backend.cascade)
    info.cascade_min_keys = cascade_min_keys(config, info.kv_token_bytes, geometry);
  executor.checkpoint = std::move(checkpoint);
  executor.model = model;
  executor.placement.batch_invariant = config.deterministic_inference;
  executor.placement.rounds_x = info.rounds_x;
  executor.resolution = info.resolution;
  executor.has_prefix_info = !info.always_absorbs;
  executor.logits = !config.pooling;
  executor.hidden_states = config.pooling.has_value();
  return resolved;
}

void set_pool_size(ResolvedExecutor& executor, const PoolSizes& sizes, int64_t max_kv_tokens) {
  ExecutorConfig& config = executor.config;
  config.storage.num_pages = sizes.num_pages;
  if (config.storage.has_states()) {
    config.storage.states.num_slots = sizes.num_states;
    executor.info.state_pool_bytes = config.storage.states.num_bytes();
  }
  config.backend.limits.max_kv_tokens = max_kv_tokens;
  executor.info.pool_bytes = config.storage.num_bytes();
  executor.info.workspace_bytes = workspace_bytes(config.resolution, config.backend);
}

ExecutorBytes executor_bytes(const ResolvedExecutor& executor) {
  const ExecutorConfig& config = executor.config;
  const BatchLimits& limits = config.backend.limits;
  const double logits = 1.0 * limits.max_logit_rows() * config.model.head_size() * sizeof(float);
  const auto rows = [&](int64_t width) {
    return 1.0 * limits.max_tokens * static_cast<double>(width) *
           static_cast<double>(size_of(config.placement.dtype));
  };
  const double hidden_states = config.hidden_states ? rows(config.hidden_width()) : 0.0;
  return {.weights = executor.weight_bytes,
          .kv_pool = static_cast<double>(executor.info.pool_bytes),
          .states = static_cast<double>(executor.info.state_pool_bytes),
          .results = (config.logits ? logits : 0.0) + hidden_states + rows(config.hidden_input_width()),
          .activations = activation_bytes(config.model, limits, config.placement),
          .workspaces = static_cast<double>(executor.info.workspace_bytes)};
}

}  // namespace attend
