#include "attend/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attend/backends/create.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/math.h"
#include "attend/engine/graph_runner.h"
#include "attend/engine/require_memory.h"
#include "attend/engine/scheduler.h"
#include "attend/engine/step_inputs.h"
#include "attend/engine/step_runner.h"
#include "attend/engine/stop_matcher.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Chosen when the user names no number: enough to fill a device with decodes.
constexpr int kDefaultMaxRunningRequests = 32, kDefaultMaxRunningRequestsOnGpu = 256;
// Larger decode steps gain little from a graph.
constexpr int kDefaultMaxGraphSize = 256;
// A pool's slots are 32-bit numbers; some room for the last page and the padding page.
constexpr int64_t kMaxPoolTokens = std::numeric_limits<int32_t>::max() - 1024;
// Share of the free memory that the KV pool may take when the user names no size.
constexpr double kPoolMemoryShare = 0.5;

// A seed of its own for each request that brings none (splitmix64's finaliser).
uint64_t derive_seed(uint64_t engine_seed, RequestId id) {
  uint64_t x = engine_seed + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(id);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The batch sizes that decode steps are padded to. Throws Error(kInvalidArgument) for one that no step
// reaches.
std::vector<int> graph_sizes(const EngineConfig& config, const BatchLimits& limits) {
  require(config.cuda_graph_max_bs >= 0, "cuda_graph_max_bs ", config.cuda_graph_max_bs, ": at least 1");
  if (config.cuda_graph_bs.empty()) {
    const int wanted = config.cuda_graph_max_bs > 0 ? config.cuda_graph_max_bs : kDefaultMaxGraphSize;
    return default_graph_sizes(std::min(wanted, limits.max_reqs));
  }
  std::vector<int> sizes = config.cuda_graph_bs;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  require(sizes.front() >= 1 && sizes.back() <= limits.max_reqs, "cuda_graph_bs ",
          sizes.front() < 1 ? sizes.front() : sizes.back(), ": 1 to ", limits.max_reqs,
          ", the requests of a step");
  return sizes;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct Engine::TextState {
  StreamDecoder decoder;
  StopMatcher stops;
  std::string text;  // what the last token added

  // The text that a token adds, or kNoToken. A token that stops the request is not part of the text.
  std::string_view add(int32_t token_id, FinishReason reason) {
    text.clear();
    if (token_id != kernels::kNoToken && reason != FinishReason::kStop)
      text = stops.push(decoder.push(token_id));
    if (reason != FinishReason::kNone && !stops.matched()) {
      text += stops.push(decoder.flush());
      text += stops.flush();
    }
    return text;
  }
};

Engine::Engine(const EngineConfig& config, const LoadProgress& progress) : random_seed_(config.random_seed) {
  model_config_ = read_config(config.model_path);
  if (std::filesystem::exists(config.model_path / "tokenizer.json"))
    tokenizer_ = Tokenizer::from_path(config.model_path);
  warn_about_token_ids(config.model_path);
  resolve_config(config);
  create_pools(config);
  model_ = load_model(
      config.model_path, model_config_, config.load_format, progress,
      {.device = info_.device, .dtype = info_.dtype, .batch_invariant = config.deterministic_inference});
  model_->prepare(info_.limits);
  info_.weight_bytes = model_->weight_bytes();
  scheduler_ = std::make_unique<Scheduler>(info_.limits, *rows_, *slots_);
  runner_ = std::make_unique<StepRunner>(*model_, *attention_, *rows_, info_.limits, info_.device);
  if (info_.device.type == DeviceType::kCuda) prepare_graphs(config);
}

Engine::~Engine() = default;

void Engine::warn_about_token_ids(const std::filesystem::path& model_path) const {
  const int vocab_size = model_config_.vocab_size;
  for (const int32_t id : model_config_.eos_token_ids)
    if (id >= vocab_size)
      log_warning(model_path.string(), ": eos_token_id ", id, ": config.json's vocab_size is ", vocab_size,
                  ": no request will end there");
  if (tokenizer_ && tokenizer_->vocab_size() > vocab_size)
    log_warning((model_path / "tokenizer.json").string(), ": has ids 0 to ", tokenizer_->vocab_size() - 1,
                ", config.json's vocab_size is ", vocab_size,
                ": prompts with a token that the model does not have will be refused");
}

void Engine::resolve_config(const EngineConfig& config) {
  const int longest = model_config_.max_context_len();
  require(config.context_length >= 0 && config.context_length <= longest, "context_length ",
          config.context_length, ": 1 to ", longest, ", which is what the model's positions reach");
  require(config.max_running_requests >= 0, "max_running_requests ", config.max_running_requests,
          ": at least 1");
  require(config.max_total_tokens >= 0, "max_total_tokens ", config.max_total_tokens, ": at least 1");
  require(config.chunked_prefill_size >= 1, "chunked_prefill_size ", config.chunked_prefill_size,
          ": at least 1");
  info_.model = model_config_.architecture;
  require(config.mem_fraction_static > 0.0 && config.mem_fraction_static < 1.0, "mem_fraction_static ",
          config.mem_fraction_static, ": above 0 and below 1");
  info_.device = config.device;
  info_.hardware = detect_hardware(config.device);
  const bool on_gpu = config.device.type == DeviceType::kCuda;
  info_.dtype = config.dtype.value_or(on_gpu ? model_config_.dtype : DType::kF32);
  if (!on_gpu && info_.dtype != DType::kF32)
    fail(ErrorCode::kUnsupported, "dtype ", info_.dtype, ": activations are float32 on the CPU");
  if (on_gpu && model_config_.rope.type == RopeType::kDynamic)
    fail(ErrorCode::kUnsupported, "rope type dynamic on ", config.device, ": attend has it on the CPU only");
  require(info_.dtype == DType::kF32 || info_.dtype == DType::kF16 || info_.dtype == DType::kBF16, "dtype ",
          info_.dtype, ": expected float32, float16 or bfloat16");
  info_.context_length = config.context_length > 0 ? config.context_length : longest;
  info_.kv_cache_dtype = config.kv_cache_dtype.value_or(model_config_.dtype);

  const ModelGeometry geometry = model_config_.geometry(info_.dtype, info_.kv_cache_dtype);
  Requirement requirement = requirement_of(geometry);
  requirement.deterministic = config.deterministic_inference;
  if (on_gpu && config.deterministic_inference)
    fail(ErrorCode::kUnsupported, "deterministic_inference on ", config.device,
         ": the dense layers offer it on cpu alone");
  requirement.graphs = on_gpu && !config.disable_cuda_graph;
  info_.resolution = resolve(requirement, info_.hardware, config.wishes, backend_table());

  const int default_reqs = on_gpu ? kDefaultMaxRunningRequestsOnGpu : kDefaultMaxRunningRequests;
  info_.limits.max_reqs = config.max_running_requests > 0 ? config.max_running_requests : default_reqs;
  // Every running request adds at least one token to a step.
  info_.limits.max_tokens = std::max(config.chunked_prefill_size, info_.limits.max_reqs);
  if (on_gpu) graph_sizes(config, info_.limits);  // refuses before weights are read
}

int64_t Engine::choose_pool_tokens(const EngineConfig& config, const MhaKvPool::Config& two_pages) const {
  const bool on_gpu = info_.device.type == DeviceType::kCuda;
  const auto free_bytes = static_cast<double>(available_bytes(info_.device));
  const auto page_bytes = static_cast<double>(MhaKvPool::num_bytes(two_pages)) / 2.0;
  // What is there for the pool. A GPU holds the weights too, which are not loaded yet.
  double pool_bytes = kPoolMemoryShare * free_bytes;
  if (on_gpu) {
    const auto weight_bytes = static_cast<double>(device_weight_bytes(model_config_, info_.dtype));
    const double total_bytes = static_cast<double>(cuda::device_info(info_.device).total_bytes);
    const double reserved_bytes = (1.0 - config.mem_fraction_static) * total_bytes;
    pool_bytes = free_bytes - weight_bytes - reserved_bytes;
    const double needed_bytes =
        config.max_total_tokens > 0
            ? page_bytes * (static_cast<double>(config.max_total_tokens) / two_pages.page_size + 1.0)
            : 2.0 * page_bytes + reserved_bytes;
    if (weight_bytes + needed_bytes > free_bytes)
      fail(ErrorCode::kOutOfMemory, "device ", info_.device, ": needed ",
           static_cast<int64_t>(weight_bytes + needed_bytes), " bytes (", static_cast<int64_t>(weight_bytes),
           " of weights), free ", static_cast<int64_t>(free_bytes));
  }
  if (config.max_total_tokens > 0) return config.max_total_tokens;
  const int64_t affordable = static_cast<int64_t>(pool_bytes / page_bytes) * two_pages.page_size;
  return std::min(int64_t{info_.limits.max_reqs} * info_.context_length, affordable);
}

void Engine::create_pools(const EngineConfig& config) {
  const int page_size = info_.resolution.page_size;
  const bool on_gpu = info_.device.type == DeviceType::kCuda;
  ModelGeometry geometry = model_config_.geometry(info_.dtype, info_.kv_cache_dtype);
  geometry.max_context_len = info_.context_length;
  MhaKvPool::Config pool{.num_layers = model_config_.num_layers,
                         .num_kv_heads = model_config_.num_kv_heads,
                         .head_dim_qk = model_config_.head_dim,
                         .head_dim_v = model_config_.head_dim,
                         .page_size = page_size,
                         .num_pages = 2,
                         .dtype = info_.kv_cache_dtype,
                         .layout = on_gpu ? KvLayout::kTokenMajor : KvLayout::kHeadMajor,
                         .device = info_.device,
                         .scales = {}};
  const int64_t tokens = choose_pool_tokens(config, pool);
  if (tokens < 1)
    fail(ErrorCode::kOutOfMemory, "KV pool: needed ", MhaKvPool::num_bytes(pool), " bytes for a page of ",
         page_size, " tokens, free for it ",
         static_cast<int64_t>(kPoolMemoryShare * static_cast<double>(available_bytes(info_.device))));
  require(tokens <= kMaxPoolTokens, "max_total_tokens ", tokens, ": at most ", kMaxPoolTokens,
          ", token slots are 32-bit numbers");
  const int64_t num_pages = ceil_div(tokens, int64_t{page_size}) + 1;  // and the padding page
  pool.num_pages = static_cast<int>(num_pages);
  info_.pool_bytes = MhaKvPool::num_bytes(pool);
  info_.pool_slots = (pool.num_pages - 1) * page_size;
  info_.limits.max_kv_tokens = info_.pool_slots;
  if (!on_gpu) check_memory();

  pool_ = std::make_unique<MhaKvPool>(pool);
  rows_ = std::make_unique<ReqToTokenPool>(info_.limits.max_reqs, info_.context_length, info_.device);
  slots_ = make_allocator(page_size, pool.num_pages);
  const BackendConfig backend{.device = config.device,
                              .model = geometry,
                              .limits = info_.limits,
                              .page_size = page_size,
                              .deterministic = config.deterministic_inference};
  info_.workspace_bytes = workspace_bytes(info_.resolution, backend);
  attention_ =
      create_backend(info_.resolution, BackendContext{.config = backend, .requests = *rows_, .pool = *pool_});
}

void Engine::prepare_graphs(const EngineConfig& config) {
  std::vector<int> sizes = graph_sizes(config, info_.limits);
  const size_t free_before = available_bytes(info_.device);
  runner_->pad_decodes(sizes, !config.disable_cuda_graph);
  if (config.disable_cuda_graph) return;
  info_.graph_bytes = free_before - std::min(free_before, available_bytes(info_.device));
  info_.graph_sizes = std::move(sizes);
}

void Engine::check_memory() const {
  const BatchLimits& limits = info_.limits;
  const auto text = [](int number) { return std::to_string(number); };
  require_host_memory(
      {{"KV pool of " + text(info_.pool_slots) + " tokens", static_cast<double>(info_.pool_bytes),
        "--max-total-tokens"},
       {"table of " + text(limits.max_reqs) + " requests of " + text(info_.context_length) + " tokens",
        static_cast<double>(ReqToTokenPool::num_bytes(limits.max_reqs, info_.context_length)),
        "--max-running-requests or --context-length"},
       {"logits of " + text(limits.max_reqs) + " requests",
        1.0 * limits.max_reqs * model_config_.vocab_size * sizeof(float), "--max-running-requests"},
       {"activations of " + text(limits.max_tokens) + " tokens a step",
        activation_bytes(model_config_, limits.max_tokens, DType::kF32),
        "--chunked-prefill-size or --max-running-requests"}},
      available_host_bytes());
}

RequestId Engine::submit(std::string_view prompt, const SamplingParams& params) {
  if (!tokenizer_)
    fail(ErrorCode::kUnsupported, "prompt text: the model directory has no tokenizer.json; give input_ids");
  return submit(tokenizer_->encode(prompt), params);
}

RequestId Engine::submit(std::vector<int32_t> prompt, const SamplingParams& params) {
  check(params);
  require(!prompt.empty(), "prompt: no tokens");
  for (int32_t id : prompt)
    require(id >= 0 && id < model_config_.vocab_size, "token id ", id, ": 0 to ",
            model_config_.vocab_size - 1);
  require(static_cast<int>(prompt.size()) < info_.context_length, "prompt of ", prompt.size(),
          " tokens: the context holds ", info_.context_length, ", one of them for the answer");
  for (int32_t id : params.stop_token_ids)
    require(id >= 0 && id < model_config_.vocab_size, "stop_token_ids: ", id, ": 0 to ",
            model_config_.vocab_size - 1);
  require(params.stop.empty() || tokenizer_.has_value(), "stop strings need a tokenizer.json");

  auto request = std::make_unique<Request>();
  request->id = next_id_;
  request->num_prompt = static_cast<int>(prompt.size());
  request->tokens = std::move(prompt);
  request->tokens.reserve(static_cast<size_t>(
      std::min<int64_t>(info_.context_length, int64_t{request->num_prompt} + params.max_new_tokens)));
  request->params = params;
  request->seed = params.seed.value_or(derive_seed(random_seed_, next_id_));
  request->times.submitted = Clock::now();
  scheduler_->submit(std::move(request));
  if (tokenizer_)
    texts_.try_emplace(next_id_, TextState{StreamDecoder(*tokenizer_), StopMatcher(params.stop), {}});
  return next_id_++;
}

bool Engine::step(const OutputSink& sink) {
  const auto start = Clock::now();
  const ScheduledStep& step = scheduler_->schedule();
  if (step.requests.empty()) {
    ensure(scheduler_->idle(), "requests wait and none can be admitted");
    return false;
  }
  const View<const int32_t> tokens = runner_->run(step);
  stats_.peak_used_slots = std::max(stats_.peak_used_slots, slots_->num_used_slots());
  count(step, seconds_since(start));
  advance(step, tokens, sink);
  if (step.mode == ForwardMode::kDecode)
    stats_.decode_host_seconds += seconds_since(start) - runner_->device_seconds();
  return true;
}

void Engine::check_weights() const { model_->check_weights(); }

void Engine::advance(const ScheduledStep& step, View<const int32_t> tokens, const OutputSink& sink) {
  size_t row = 0;
  const View<const int32_t> sampling = runner_->sampling_requests();
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const auto& [request, num_new] = step.requests[i];
    request->num_computed += num_new;
    if (row < sampling.size() && sampling[row] == static_cast<int32_t>(i)) {
      accept_token(*request, tokens[row], sink);
      ++row;
    }
  }
}

void Engine::accept_token(Request& request, int32_t token_id, const OutputSink& sink) {
  if (token_id != kernels::kNoToken) request.tokens.push_back(token_id);
  if (request.num_output() <= 1) request.times.first_token = Clock::now();
  request.finish_reason = finish_reason_after(request, token_id);
  std::string_view text;
  if (const auto found = texts_.find(request.id); found != texts_.end()) {
    text = found->second.add(token_id, request.finish_reason);
    if (found->second.stops.matched() && token_id != kernels::kNoToken)
      request.finish_reason = FinishReason::kStop;
  }
  const bool finished = request.finish_reason != FinishReason::kNone;
  if (finished) request.times.finished = Clock::now();
  sink({request.id, token_id, text, request.finish_reason, request});
  if (finished) {
    texts_.erase(request.id);
    scheduler_->finish(request.id);
  }
}

FinishReason Engine::finish_reason_after(const Request& request, int32_t token_id) const {
  if (token_id == kernels::kNoToken) return FinishReason::kError;
  const auto contains = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token_id) != ids.end();
  };
  if (!request.params.ignore_eos && contains(model_config_.eos_token_ids)) return FinishReason::kStop;
  if (contains(request.params.stop_token_ids)) return FinishReason::kStop;
  // The longest that the context, or the whole pool, could hold.
  const int longest = std::min(info_.context_length, info_.pool_slots);
  if (request.num_output() >= request.params.max_new_tokens || request.num_tokens() >= longest)
    return FinishReason::kLength;
  return FinishReason::kNone;
}

void Engine::count(const ScheduledStep& step, double seconds) {
  ++stats_.num_steps;
  if (step.mode == ForwardMode::kDecode) {
    stats_.num_decode_tokens += step.num_tokens;
    stats_.decode_seconds += seconds;
  } else {
    stats_.num_prefill_tokens += step.num_tokens;
    stats_.prefill_seconds += seconds;
  }
}

}  // namespace attend
