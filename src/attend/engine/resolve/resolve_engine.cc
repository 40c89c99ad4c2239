#include "attend/engine/resolve/resolve_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/math.h"
#include "attend/base/printable.h"
#include "attend/engine/make_tiers.h"
#include "attend/engine/resolve/require_memory.h"
#include "attend/engine/resolve/resolve_draft.h"
#include "attend/engine/speculation/adaptive_steps.h"
#include "attend/exec/graph_runner.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/kv/cache_spec.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/state/state_pool.h"
#include "attend/model/load_vision_tower.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Default: enough requests to saturate a device with decode steps.
constexpr int kDefaultMaxRunningRequests = 32, kDefaultMaxRunningRequestsOnGpu = 256;
// Default number of new tokens in a step. On a CPU, dense layers process 512 rows at a time.
constexpr int kDefaultChunk = 512, kDefaultChunkOnGpu = 2048;
// Defaults of a pooling engine: inputs of a step, and their tokens unless one input has more.
constexpr int kDefaultPooledInputs = 256, kDefaultPooledTokens = 2048;
// Larger decode steps gain little from a graph.
constexpr int kDefaultMaxGraphSize = 256;
// Slots of a pool are 32-bit numbers; leaves space for the last page and the padding page.
constexpr int64_t kMaxPoolTokens = std::numeric_limits<int32_t>::max() - 1024;
// Snapshots of recurrent states that a prefix cache needs at least.
constexpr int kMinSnapshots = 8;
// Largest share of a GPU's memory for the states of running requests, unless their number is given.
constexpr double kMaxLiveStatesShare = 0.125;
// Default share of the free memory for the KV pool.
constexpr double kPoolMemoryShare = 0.5;

// Default number, except for suffix decoding, and the largest number.
constexpr int kDefaultDraftTokens = 12, kMaxDraftTokens = 64;
// Tokens of a tree that are verified, as in SGLang's automatic choice.
constexpr int kDefaultTreeTokens = 8;
// With more requests, a device is saturated without drafts. The CPU value is measured in
// docs/speculative-decoding.md; the GPU value follows published figures.
constexpr int kDefaultDraftingReqs = 4, kDefaultDraftingReqsOnGpu = 32;

// Default number of tokens that a draft model predicts, as SGLang for chains.
int default_num_steps(const ModelSpec& target) {
  const bool is_longer =
      target.architecture == "LlamaForCausalLM" || target.architecture.starts_with("Grok1");
  return is_longer ? 5 : 3;
}

// Drafts are trees. `options`: with num_steps and eagle_topk.
void choose_tree_size(const EngineConfig& config, const ModelSpec& target, SpeculativeOptions& options) {
  check(options);  // also num_steps, if it was chosen
  const auto most = static_cast<int>(std::min<int64_t>(kMaxDraftTokens, num_candidates(options) + 1));
  if (options.num_draft_tokens == 0) options.num_draft_tokens = std::min(kDefaultTreeTokens, most);
  require(options.num_draft_tokens <= most, "speculative_num_draft_tokens ", options.num_draft_tokens,
          ": 2 to ", most, ", with ", options.num_steps, " steps of ", options.eagle_topk, " candidates");
  if (target.has_states())
    fail(ErrorCode::kUnsupported, "speculative_eagle_topk ", options.eagle_topk, ": expected 1 for ",
         target.architecture, ", whose recurrent states follow one path");
  if (config.deterministic_inference)
    fail(ErrorCode::kUnsupported, "speculative_eagle_topk ", options.eagle_topk,
         ": expected 1 with enable_deterministic_inference; in a tree, keys are in another order, so that "
         "sums "
         "round differently");
}

SpeculativeOptions choose_speculation(const EngineConfig& config, const ModelSpec& target) {
  SpeculativeOptions options = config.speculation;
  check(options);
  if (!options.algorithm) return options;
  if (has_draft_model(*options.algorithm)) {
    options.eagle_topk = std::max(1, options.eagle_topk);
    const bool trees = options.eagle_topk > 1;
    if (options.num_steps == 0)
      options.num_steps =
          options.num_draft_tokens > 0 && !trees ? options.num_draft_tokens - 1 : default_num_steps(target);
    if (trees)
      choose_tree_size(config, target, options);
    else
      options.num_draft_tokens = options.num_steps + 1;
    if (options.adaptive) {
      options.adaptive_rows = options.adaptive_config.empty() ? default_adaptive_rows()
                                                              : read_adaptive_rows(options.adaptive_config);
      options.num_draft_tokens = std::max(2, most_steps(options.adaptive_rows) + 1);
    }
  }
  if (options.num_draft_tokens == 0)
    options.num_draft_tokens = options.algorithm == SpeculativeAlgorithm::kSuffix
                                   ? std::clamp(1 + longest_draft(options.suffix), 2, kMaxDraftTokens)
                                   : kDefaultDraftTokens;
  require(
      options.synthetic_accept_length == 0.0 || (options.synthetic_accept_length >= 1.0 &&
                                                 options.synthetic_accept_length <= options.num_draft_tokens),
      "speculative_accept_length ", options.synthetic_accept_length, ": expected 1 to ",
      options.num_draft_tokens, ", the tokens that a step verifies");
  if (options.disable_by_batch_size == 0)
    options.disable_by_batch_size = config.on_gpu() ? kDefaultDraftingReqsOnGpu : kDefaultDraftingReqs;
  return options;
}

// Warns about options of recurrent states, for a model without them.
void warn_about_states(const EngineConfig& config) {
  const struct {
    const char* name;
    bool is_given;
  } options[] = {
      {"mamba_full_memory_ratio", config.mamba_full_memory_ratio != EngineConfig().mamba_full_memory_ratio},
      {"max_mamba_cache_size", config.max_mamba_cache_size != 0},
      {"state_snapshot_interval", config.state_snapshot_interval != 0}};
  for (const auto& [name, is_given] : options)
    if (is_given) log_warning(name, ": ignored; only for models with recurrent layers");
}

// Limit of positions past those of the model.
constexpr int kMaxExtendedPositions = 1 << 24;

// Returns the model with as many positions as the config has. RoPE is defined for all of them, so more than
// the model was trained for are accepted with a warning, as in transformers.
ModelSpec extend_positions(const EngineConfig& config, ModelSpec model) {
  if (config.context_length <= model.max_context_len() || model.learned_positions) return model;
  log_warning("context_length ", config.context_length, ": more than the ", model.max_context_len(),
              " positions of the model, whose output may degrade after them");
  model.extended_positions = config.context_length;
  return model;
}

void check_longrope(const EngineConfig& config, const ModelSpec& model) {
  if (!config.recompute_longrope) return;
  require(model.longrope_length() > 0, "recompute_longrope: expected a model with RoPE type longrope, not ",
          model.architecture);
  require(!config.overlap_schedule.value_or(false), "recompute_longrope: not with overlap_schedule");
  require(!config.speculation.algorithm, "recompute_longrope: not with speculative decoding");
}

// Throws unless the GPUs from config.device on can run tp_size ranks.
void check_gpu_ranks(const EngineConfig& config) {
  const bool is_eager = cuda::load_kernels_eagerly();  // before the first use of a device
  const int count = cuda::device_count() - config.device.index;
  require(config.tp_size <= count, "tp_size ", config.tp_size, ": 1 to ", count, ", the number of GPUs from ",
          config.device, " on");
  require(config.tp_size <= 8, "tp_size ", config.tp_size, ": 1 to 8 on GPUs");
  if (config.speculation.algorithm && has_draft_head(*config.speculation.algorithm))
    fail(ErrorCode::kUnsupported, "tp_size ", config.tp_size,
         ": draft heads on several GPUs are not supported; expected NGRAM, SUFFIX or STANDALONE");
  // A kernel that is loaded while others run could wait for one that waits for another rank.
  if (!is_eager)
    fail(ErrorCode::kUnsupported, "tp_size ", config.tp_size,
         ": the process has used CUDA before with lazy loading of kernels; expected "
         "CUDA_MODULE_LOADING=EAGER in the "
         "environment");
}

// Checks numbers of a config that no other choice depends on.
void check_numbers(const EngineConfig& config, const ModelSpec& model) {
  if (model.classifier && !config.pooling)
    fail(ErrorCode::kUnsupported, model.architecture,
         " has a classification head: it makes no text, but scores (attend serve)");
  if (model.bidirectional() && !config.pooling)
    fail(ErrorCode::kUnsupported, model.architecture,
         " attends in both directions: it makes no text, but vectors (attend embed)");
  require(config.tp_size >= 1, "tp_size ", config.tp_size, ": at least 1");
  if (config.tp_size > 1 && config.on_gpu()) check_gpu_ranks(config);
  require(config.watchdog_timeout.count() >= 1, "watchdog_timeout ", config.watchdog_timeout.count(),
          " ms: at least 1");
  require(std::isfinite(config.mamba_full_memory_ratio) && config.mamba_full_memory_ratio >= 0.0,
          "mamba_full_memory_ratio ", config.mamba_full_memory_ratio, ": at least 0");
  require(config.max_mamba_cache_size >= 0, "max_mamba_cache_size ", config.max_mamba_cache_size,
          ": at least 1");
  require(config.state_snapshot_interval >= 0, "state_snapshot_interval ", config.state_snapshot_interval,
          ": at least 1, or 0 to choose by size");
  if (!model.has_states()) warn_about_states(config);
  if (config.pooling && config.speculation.algorithm)
    fail(ErrorCode::kUnsupported, "speculative decoding: an embedding engine does not decode");
  const int shortest = config.pooling ? 1 : 2;
  const bool is_limited = model.learned_positions || model.dual_chunk_limit > 0;
  const int longest = is_limited ? model.max_context_len() : kMaxExtendedPositions;
  require(
      config.context_length == 0 || (config.context_length >= shortest && config.context_length <= longest),
      "context_length ", config.context_length, ": ", shortest, " to ", longest,
      model.learned_positions      ? ", the number of learned positions"
      : model.dual_chunk_limit > 0 ? ", up to which dual chunk attention equals plain attention"
                                   : "");
  require(config.max_running_requests >= 0, "max_running_requests ", config.max_running_requests,
          ": at least 1");
  require(config.max_kv_tokens >= 0, "max_kv_tokens ", config.max_kv_tokens, ": at least 1");
  require(config.max_total_tokens >= 0 && config.max_total_tokens <= kMaxPoolTokens, "max_total_tokens ",
          config.max_total_tokens, ": 1 to ", kMaxPoolTokens, ", token slots are 32-bit numbers");
  require(config.chunked_prefill_size >= 0, "chunked_prefill_size ", config.chunked_prefill_size,
          ": at least 1, or 0 to choose by device");
  require(config.schedule.conservativeness >= 0.0, "schedule_conservativeness ",
          config.schedule.conservativeness, ": at least 0");
  require(config.schedule.max_queued_requests >= 0, "max_queued_requests ",
          config.schedule.max_queued_requests, ": at least 1, or 0 for no limit");
  require(config.swa_full_tokens_ratio > 0.0 && config.swa_full_tokens_ratio <= 1.0, "swa_full_tokens_ratio ",
          config.swa_full_tokens_ratio, ": above 0 and at most 1");
  require(config.mem_fraction_static > 0.0 && config.mem_fraction_static < 1.0, "mem_fraction_static ",
          config.mem_fraction_static, ": above 0 and below 1");
  require(config.cuda_graph_max_bs >= 0, "cuda_graph_max_bs ", config.cuda_graph_max_bs, ": at least 1");
  if (config.on_gpu() && !config.pooling && model.vocab_size > kernels::kMaxSampledVocabOnGpu)
    fail(ErrorCode::kUnsupported, "vocab_size ", model.vocab_size, ": device ", config.device,
         " chooses among at most ", kernels::kMaxSampledVocabOnGpu, " tokens");
}

// Returns the default number of running requests of a GPU. Each has a recurrent state, which may be as large
// as the K/V of thousands of tokens.
int default_reqs_on_gpu(const EngineConfig& config, const ModelSpec& model) {
  if (!model.has_states()) return kDefaultMaxRunningRequestsOnGpu;
  const StatePool::Config states{.caches = state_caches(model.caches()),
                                 .dtype = config.dtype.value_or(model.dtype)};
  const double bytes =
      kMaxLiveStatesShare * static_cast<double>(cuda::device_info(config.device).total_bytes);
  const double affordable = bytes / static_cast<double>(std::max<size_t>(1, states.slot_bytes()));
  return static_cast<int>(std::clamp(affordable, 1.0, 1.0 * kDefaultMaxRunningRequestsOnGpu));
}

int default_max_reqs(const EngineConfig& config, const ModelSpec& model) {
  if (config.pooling) return kDefaultPooledInputs;
  const int reqs = config.on_gpu() ? default_reqs_on_gpu(config, model) : kDefaultMaxRunningRequests;
  if (!model.has_states() || config.max_mamba_cache_size == 0) return reqs;
  // The other half of the given number of states is for snapshots.
  return std::min(reqs, std::max(1, config.max_mamba_cache_size / 2));
}

BatchLimits choose_limits(const EngineConfig& config, const ModelSpec& model, const EngineInfo& info) {
  const SpeculativeOptions& speculation = info.speculation;
  BatchLimits limits;
  limits.max_reqs =
      config.max_running_requests > 0 ? config.max_running_requests : default_max_reqs(config, model);
  // Every running request adds at least one token to a step.
  const int default_chunk = config.pooling    ? std::max(kDefaultPooledTokens, info.context_length)
                            : config.on_gpu() ? kDefaultChunkOnGpu
                                              : kDefaultChunk;
  limits.max_tokens = std::max(config.chunked_prefill_size > 0 ? config.chunked_prefill_size : default_chunk,
                               limits.max_reqs);
  if (speculation.algorithm) {
    limits.max_draft_reqs = std::min(limits.max_reqs, speculation.disable_by_batch_size);
    limits.max_draft_tokens = limits.max_draft_reqs * (speculation.num_draft_tokens - 1);
    if (speculation.eagle_topk > 1) {
      // Accepted tokens of another path than the first one are computed again (Request::num_pending).
      const int num_pending = speculation.num_steps;
      limits.max_tree_tokens = speculation.num_draft_tokens + num_pending;
      limits.max_draft_tokens += limits.max_draft_reqs * num_pending;
      limits.max_tokens = std::max(limits.max_tokens, limits.max_reqs + limits.max_draft_reqs * num_pending);
    }
  }
  return limits;
}

// Bytes of an engine's executors that are not part of the KV pool.
struct FixedBytes {
  double weights = 0.0;
  double states = 0.0;  // recurrent states of the requested number of slots
};

// Returns the bytes that a GPU has for the KV pool in addition to the weights, which are not loaded yet, and
// to states. Throws Error(kOutOfMemory) if a pool of two pages, or of the requested tokens, does not fit.
double gpu_pool_bytes(const EngineConfig& config, const FixedBytes& fixed, double page_bytes, int page_size) {
  const auto free_bytes = static_cast<double>(available_bytes(config.device));
  const double total_bytes = static_cast<double>(cuda::device_info(config.device).total_bytes);
  const double reserved_bytes = (1.0 - config.mem_fraction_static) * total_bytes;
  const double needed_bytes =
      config.max_total_tokens > 0
          ? page_bytes * (static_cast<double>(config.max_total_tokens) / page_size + 1.0)
          : 2.0 * page_bytes + reserved_bytes;
  const double all_bytes = fixed.weights + fixed.states + needed_bytes;
  const auto text = [](double bytes, const char* unit = "") {
    return std::to_string(static_cast<int64_t>(bytes)) + unit + gigabytes_suffix(bytes);
  };
  if (all_bytes > free_bytes)
    fail(ErrorCode::kOutOfMemory, "device ", config.device, ": needed ", text(all_bytes, " bytes"), ", ",
         text(fixed.weights), " of them weights",
         fixed.states > 0.0 ? " and " + text(fixed.states) + " recurrent states" : "", ", free ",
         text(free_bytes));
  return free_bytes - fixed.weights - fixed.states - reserved_bytes;
}

// Executors on the device of the first one: all of them, or on GPUs those of rank 0. Other ranks need as
// much.
auto on_first_device(std::span<const ResolvedExecutor> executors) {
  return std::views::filter(executors,
                            [device = executors.front().info.device](const ResolvedExecutor& executor) {
                              return executor.info.device == device;
                            });
}

template <class Count>
double sum(std::span<const ResolvedExecutor> executors, Count count) {
  double total = 0.0;
  for (const ResolvedExecutor& executor : on_first_device(executors))
    total += static_cast<double>(count(executor));
  return total;
}

// Returns the number of token slots of the KV pools: the user's, or chosen from the free memory. The pools
// have at least two pages.
int64_t choose_pool_tokens(const EngineConfig& config, const EngineInfo& info,
                           std::span<const ResolvedExecutor> executors) {
  const int page_size = info.page_size;
  const double page_bytes =
      sum(executors, [](const ResolvedExecutor& one) { return one.config.storage.page_bytes(); });
  const double weight_bytes = sum(executors, [](const ResolvedExecutor& one) { return one.weight_bytes; });
  // Unless the number of states is given, snapshots share the memory of the KV pool by their ratio.
  const double state_bytes = sum(executors, [](const ResolvedExecutor& one) { return one.info.state_bytes; });
  const bool shares = state_bytes > 0.0 && info.prefix_cache && config.max_mamba_cache_size == 0;
  const int num_states =
      info.prefix_cache ? std::max(info.limits.max_reqs, config.max_mamba_cache_size) : info.limits.max_reqs;
  const FixedBytes fixed{.weights = weight_bytes,
                         .states = state_bytes * (num_states + 1 + info.limits.max_draft_reqs)};
  const double both_bytes =
      config.on_gpu() ? gpu_pool_bytes(config, fixed, page_bytes, page_size)
                      : kPoolMemoryShare * static_cast<double>(available_bytes(config.device)) - fixed.states;
  const double pool_bytes = both_bytes / (shares ? 1.0 + config.mamba_full_memory_ratio : 1.0);
  int64_t tokens = config.max_total_tokens;
  // The last page of each input may be partly filled.
  if (tokens == 0 && config.pooling)
    tokens = int64_t{info.limits.max_tokens} + int64_t{info.limits.max_reqs} * page_size;
  if (tokens == 0) {
    const int64_t affordable = static_cast<int64_t>(pool_bytes / page_bytes) * page_size;
    tokens = std::min({int64_t{info.limits.max_reqs} * info.context_length, affordable, kMaxPoolTokens});
  }
  if (tokens < 1) {
    std::ostringstream states;
    if (shares) states << " with mamba_full_memory_ratio " << config.mamba_full_memory_ratio;
    if (state_bytes > 0.0)
      states << " after " << num_states << " recurrent states of " << static_cast<int64_t>(state_bytes)
             << " bytes (max_running_requests, max_mamba_cache_size)";
    fail(ErrorCode::kOutOfMemory, "KV pool: needed ",
         static_cast<int64_t>(
             sum(executors, [](const ResolvedExecutor& one) { return one.config.storage.num_bytes(); })),
         " bytes for a page of ", page_size, " tokens, free for it ",
         std::max<int64_t>(0, static_cast<int64_t>(pool_bytes)), states.str());
  }
  return tokens;
}

// Returns the number of snapshots of recurrent states: the user's, or by the ratio of their memory to that of
// the KV pool.
int choose_num_snapshots(const EngineConfig& config, const EngineInfo& info,
                         std::span<const ResolvedExecutor> executors, int num_pages) {
  const ResolvedExecutor& target = executors.front();
  if (target.info.state_bytes == 0) return 0;
  const int max_reqs = info.limits.max_reqs;
  if (const int size = config.max_mamba_cache_size; size > 0) {
    require(size >= max_reqs, "max_mamba_cache_size ", size, ": at least ", max_reqs,
            ", the running requests of a step (max_running_requests)");
    return info.prefix_cache ? size - max_reqs : 0;
  }
  if (!info.prefix_cache) return 0;
  const double kv_bytes = target.config.storage.page_bytes() * num_pages;
  const double num_snapshots =
      config.mamba_full_memory_ratio * kv_bytes / static_cast<double>(target.info.state_bytes);
  // A snapshot belongs to a page.
  return static_cast<int>(
      std::clamp(num_snapshots, 1.0 * std::min(kMinSnapshots, num_pages), 1.0 * num_pages));
}

// Returns the distance of snapshots in prompts: a multiple of the page size.
int choose_snapshot_interval(const EngineConfig& config, const EngineInfo& info, const ExecutorInfo& target) {
  if (target.state_bytes == 0) return 0;
  if (config.state_snapshot_interval > 0) {
    require(config.state_snapshot_interval % info.page_size == 0, "state_snapshot_interval ",
            config.state_snapshot_interval, ": expected a multiple of the page size ", info.page_size);
    return config.state_snapshot_interval;
  }
  const auto tokens =
      static_cast<int64_t>(ceil_div(target.state_bytes, std::max<size_t>(1, target.kv_token_bytes)));
  constexpr int64_t kMaxInterval = 1 << 30;
  return static_cast<int>(round_up(std::clamp<int64_t>(tokens, 1, kMaxInterval), int64_t{info.page_size}));
}

// Throws if the sizes do not fit into the device's memory together.
void check_memory(const EngineConfig& config, const EngineInfo& info,
                  std::span<const ResolvedExecutor> executors) {
  const BatchLimits& limits = info.limits;
  const bool pools = config.pooling.has_value();
  ExecutorBytes bytes;
  for (const ResolvedExecutor& executor : on_first_device(executors)) {
    const ExecutorBytes one = executor_bytes(executor);
    bytes.weights += one.weights;
    bytes.kv_pool += one.kv_pool;
    bytes.states += one.states;
    bytes.results += one.results;
    bytes.activations += one.activations;
    bytes.workspaces += one.workspaces;
  }
  const auto text = [](int64_t number) { return std::to_string(number); };
  // One flag determines all sizes of an embedder.
  const auto lower = [&](const char* flags) { return pools ? "--max-input-tokens" : flags; };
  const MemoryPart results =
      pools ? MemoryPart{"hidden states of " + text(limits.max_tokens) + " tokens", bytes.results, lower("")}
            : MemoryPart{"logits of " + text(limits.max_logit_rows()) + " tokens", bytes.results,
                         "--max-running-requests or --speculative-num-draft-tokens"};
  require_memory(
      {{"weights", bytes.weights, pools ? "--model-path" : "--dtype"},
       {"KV pool of " + text(info.pool_slots) + " tokens", bytes.kv_pool, lower("--max-total-tokens")},
       {"recurrent states of " + text(limits.max_reqs) + " requests and " + text(info.num_state_snapshots) +
            " snapshots",
        bytes.states, "--max-running-requests or --max-mamba-cache-size"},
       {"table of " + text(limits.max_reqs) + " requests of " + text(info.context_length) + " tokens",
        static_cast<double>(ReqToTokenPool::num_bytes(limits.max_reqs, info.context_length)),
        lower("--max-running-requests or --context-length")},
       results,
       {"activations of " + text(limits.max_tokens) + " tokens a step", bytes.activations,
        lower("--chunked-prefill-size or --max-running-requests")},
       {"attention workspaces of " + text(limits.max_kv_tokens) + " keys a step", bytes.workspaces,
        lower("--max-kv-tokens, --max-running-requests or --chunked-prefill-size")}},
      available_bytes(config.device));
}

// Returns the batch sizes that decode steps are padded to. A running request has at least one page. Throws
// Error(kInvalidArgument) for a size that no step reaches.
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
          ", the number of KV pool pages (a request needs at least one)");
  return sizes;
}

// Removes sizes that batches of at most `max_reqs` requests are not padded to.
void limit_graph_sizes(std::vector<int>& sizes, int max_reqs) {
  const auto last = std::ranges::lower_bound(sizes, max_reqs);
  if (last != sizes.end()) sizes.erase(last + 1, sizes.end());
}

// Tokens of an image, for models in which a step computes all of them.
int most_item_tokens(const ImageProcessorSpec& spec) {
  if (spec.sizing == ImageSizing::kTokenBudget) return spec.max_tokens;
  ensure(spec.sizing == ImageSizing::kSquare, "images of any size with bidirectional attention");
  return spec.edge / spec.factor() * (spec.edge / spec.factor());
}

// Returns the reason why the engine encodes no images; empty: it does. `checkpoint`: null: dummy weights.
std::string refuse_images(const EngineConfig& config, const ModelSpec& model, const BatchLimits& limits,
                          const Checkpoint* checkpoint) {
  if (!model.no_vision.empty()) return model.no_vision;
  if (!model.vision) return model.architecture + " is supported with text only";
  const VisionSpec& vision = *model.vision;
  // Attention kernels have heads of multiples of 8.
  if (vision.head_dim() % 8 != 0 || vision.head_dim() > 256)
    return "heads of " + std::to_string(vision.head_dim()) +
           " in vision_config: attend supports multiples of 8 up to 256";
  if (vision.out_size != model.hidden_size)
    return "out_hidden_size " + std::to_string(vision.out_size) + " in vision_config: expected " +
           std::to_string(model.hidden_size) + ", the decoder's hidden_size";
  if (config.pooling) return "the engine pools inputs into vectors";
  for (const RopeConfig& rope : model.ropes)
    if (!rope.pair_axes.empty() && rope.type != RopeType::kDefault)
      return "attend supports positions of images without rope scaling";
  if (checkpoint != nullptr && !vision_prefix(*checkpoint->open_tensors(), model))
    return "the model's files have no encoder of images";
  // Other running requests may decode in the same step.
  const int whole = model.has_bidirectional_items() ? most_item_tokens(vision.processor) : 0;
  if (whole > 0 && whole + limits.max_reqs > limits.max_tokens + 1)
    return "a step computes all " + std::to_string(whole) + " tokens of an image: chunked_prefill_size is " +
           std::to_string(limits.max_tokens) + ", expected at least " +
           std::to_string(whole + limits.max_reqs - 1);
  return "";
}

// Configures the encoder of images. On a GPU its weights and encoded images count as weights; activations are
// part of the memory that is reserved.
void add_image_encoder(const EngineConfig& config, ResolvedExecutor& executor, const Checkpoint* checkpoint) {
  executor.config.encodes_images = true;
  executor.config.image_cache_bytes = config.image_cache_bytes;
  if (!config.on_gpu()) return;
  const ModelSpec& model = executor.config.model;
  executor.weight_bytes += static_cast<double>(vision_device_bytes(
                               checkpoint != nullptr ? checkpoint->open_tensors().get() : nullptr, model,
                               executor.config.placement)) +
                           static_cast<double>(config.image_cache_bytes);
}

bool has_adapters(const EngineConfig& config) { return config.enable_lora || !config.lora_paths.empty(); }

// Returns the reason why the engine applies no LoRA adapters; empty: it does.
std::string refuse_adapters(const EngineConfig& config) {
  if (config.pooling) return "the engine pools inputs into vectors";
  // Requests without adapters take the path of the others.
  if (config.on_gpu() && config.deterministic_inference && !has_adapters(config))
    return "deterministic inference on a GPU requires enable_lora (--enable-lora) or lora_paths at start";
  // Rows of some weights are in another order than those of B.
  if (config.model_path.extension() == kGgufExtension)
    return "attend applies adapters to Hugging Face directories, not to GGUF files";
  return "";
}

}  // namespace

ResolvedEngine resolve_engine(const EngineConfig& config, const ModelSpec& given,
                              std::shared_ptr<const Checkpoint> checkpoint) {
  check_numbers(config, given);
  ModelSpec model = extend_positions(config, given);
  EngineInfo info;
  info.deterministic = config.deterministic_inference;
  info.schedule_policy = config.schedule.policy;
  const bool has_head = config.speculation.algorithm && has_draft_head(*config.speculation.algorithm);
  require(!has_head || !config.overlap_schedule.value_or(false),
          "enable_overlap_schedule: not with a draft head, which reads the hidden states of each step");
  check_longrope(config, model);
  info.overlap_schedule =
      config.overlap_schedule.value_or(config.on_gpu() && !has_head && !config.recompute_longrope);
  info.context_length = config.context_length > 0 ? config.context_length : model.max_context_len();
  if (config.context_length == 0 && model.dual_chunk_limit > 0)
    log_warning("context of ", info.context_length, " of ", model.max_position_embeddings,
                " tokens: up to this length dual chunk attention (dual_chunk_attention_config) equals plain "
                "attention, which attend computes");
  info.speculation = choose_speculation(config, model);
  info.limits = choose_limits(config, model, info);
  if (!config.disable_radix_cache && !config.pooling) info.prefix_cache = config.radix_eviction_policy;
  check_hierarchical_cache(config, model, info);
  info.no_images = refuse_images(config, model, info.limits, checkpoint.get());
  if (info.no_images.empty() && config.tp_size > 1) info.no_images = "tp_size above 1 computes text only";
  info.no_adapters = refuse_adapters(config);
  if (!info.no_images.empty()) model.drop_bidirectional_items();
  std::vector<ResolvedExecutor> executors;
  for (int rank = 0; rank < config.tp_size; ++rank)
    executors.push_back(resolve_executor(
        config, model, checkpoint,
        {.limits = info.limits, .context_length = info.context_length, .page_size = {}, .rank = rank}));
  if (info.no_adapters.empty() && config.on_gpu())
    for (ResolvedExecutor& executor : executors) executor.config.adapters = has_adapters(config);
  if (info.no_images.empty()) add_image_encoder(config, executors.front(), checkpoint.get());
  if (info.speculation.algorithm && has_draft_model(*info.speculation.algorithm))
    for (int rank = 0; rank < config.tp_size; ++rank)
      executors.push_back(resolve_draft(config, model, info, executors[static_cast<size_t>(rank)]));
  return set_sizes(config, std::move(info), std::move(executors));
}

ResolvedEngine set_sizes(const EngineConfig& config, EngineInfo info,
                         std::vector<ResolvedExecutor> executors) {
  info.page_size = executors.front().info.resolution.page_size;
  const int64_t tokens = choose_pool_tokens(config, info, executors);
  const int num_pages = static_cast<int>(ceil_div(tokens, int64_t{info.page_size}) + 1);  // the padding page
  info.pool_slots = (num_pages - 1) * info.page_size;
  // A limit above the total number of keys of all requests has no effect.
  const int64_t most_kv_tokens = int64_t{info.limits.max_reqs} * info.context_length;
  info.limits.max_kv_tokens =
      config.max_kv_tokens > 0 ? std::min(config.max_kv_tokens, most_kv_tokens) : info.pool_slots;
  info.num_state_snapshots = choose_num_snapshots(config, info, executors, num_pages - 1);
  info.state_snapshot_interval = choose_snapshot_interval(config, info, executors.front().info);
  const PoolSizes pools{
      .num_pages = num_pages,
      .num_states = info.limits.max_reqs + 1 + info.num_state_snapshots + info.limits.max_draft_reqs};
  for (ResolvedExecutor& executor : executors) set_pool_size(executor, pools, info.limits.max_kv_tokens);
  info.swa_pool_slots = std::max(0, executors.front().config.storage.num_window_pages() - 1) * info.page_size;
  check_memory(config, info, executors);
  std::vector<int> decode_sizes;
  if (config.on_gpu() && !config.pooling)
    decode_sizes = choose_decode_sizes(config, info.limits, num_pages - 1);
  std::vector<StepSize> verify_sizes;
  if (info.speculation.algorithm)
    verify_sizes = verify_graph_sizes(
        decode_sizes, info.limits.max_draft_reqs,
        std::max(info.speculation.num_draft_tokens, info.limits.max_tree_tokens), info.limits.max_tokens);

  ResolvedEngine resolved{.info = std::move(info), .executors = {}, .num_pages = num_pages};
  for (ResolvedExecutor& executor : executors) {
    executor.config.decode_sizes = decode_sizes;
    // A draft model decodes only requests with drafts.
    if (executor.is_draft)
      limit_graph_sizes(executor.config.decode_sizes, resolved.info.limits.max_draft_reqs);
    // A draft model computes the tokens that the step before accepted, and the nodes of trees without graphs.
    const bool has_trees = executor.is_draft && resolved.info.limits.max_tree_tokens > 0;
    if (!executor.config.model.has_states() && !has_trees) executor.config.verify_sizes = verify_sizes;
    resolved.info.executors.push_back(std::move(executor.info));
    resolved.executors.push_back(std::move(executor.config));
  }
  return resolved;
}

}  // namespace attend
