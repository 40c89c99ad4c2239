#include "attend/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attend/backends/create.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/math.h"
#include "attend/engine/require_memory.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

// Chosen when the user names no number: enough to fill the machine's cores with decodes.
constexpr int kDefaultMaxRunningRequests = 32;
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

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct Engine::TextState {
  StreamDecoder decoder;
  StopMatcher stops;
  std::string text;  // what the last token added

  // The text that a token adds. A token that stops the request is not part of the text.
  std::string_view add(int32_t token_id, FinishReason reason) {
    text.clear();
    if (reason != FinishReason::kStop) text = stops.push(decoder.push(token_id));
    if (reason != FinishReason::kNone && !stops.matched()) {
      text += stops.push(decoder.flush());
      text += stops.flush();
    }
    return text;
  }
};

Engine::Engine(const EngineConfig& config, const LoadProgress& progress) : random_seed_(config.random_seed) {
  if (config.device.type != DeviceType::kCpu)
    fail(ErrorCode::kUnsupported, "device ", config.device, ": this build has the CPU only");
  stream_.device = config.device;
  model_config_ = read_config(config.model_path);
  if (std::filesystem::exists(config.model_path / "tokenizer.json"))
    tokenizer_ = Tokenizer::from_path(config.model_path);
  warn_about_token_ids(config.model_path);
  resolve_config(config);
  create_pools(config);
  model_ = load_model(config.model_path, model_config_, config.load_format, progress);
  model_->prepare(info_.limits);
  info_.weight_bytes = model_->weight_bytes();
  scheduler_ = std::make_unique<Scheduler>(info_.limits, *rows_, *slots_);
  inputs_ = std::make_unique<StepInputs>(info_.limits, *rows_);
  logits_ = Tensor::empty({info_.limits.max_reqs, model_config_.vocab_size}, DType::kF32);
  rules_.resize(static_cast<size_t>(info_.limits.max_reqs));
  sampled_.resize(static_cast<size_t>(info_.limits.max_reqs));
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
  info_.hardware = detect_cpu();
  info_.context_length = config.context_length > 0 ? config.context_length : longest;
  info_.kv_cache_dtype = config.kv_cache_dtype.value_or(model_config_.dtype);

  const ModelGeometry geometry = model_config_.geometry(DType::kF32, info_.kv_cache_dtype);
  const Requirement requirement = requirement_of(geometry);
  info_.resolution = resolve(requirement, info_.hardware, config.wishes, backend_table());

  info_.limits.max_reqs =
      config.max_running_requests > 0 ? config.max_running_requests : kDefaultMaxRunningRequests;
  // Every running request adds at least one token to a step.
  info_.limits.max_tokens = std::max(config.chunked_prefill_size, info_.limits.max_reqs);
}

void Engine::create_pools(const EngineConfig& config) {
  const int page_size = info_.resolution.page_size;
  ModelGeometry geometry = model_config_.geometry(DType::kF32, info_.kv_cache_dtype);
  geometry.max_context_len = info_.context_length;
  MhaKvPool::Config pool{.num_layers = model_config_.num_layers,
                         .num_kv_heads = model_config_.num_kv_heads,
                         .head_dim_qk = model_config_.head_dim,
                         .head_dim_v = model_config_.head_dim,
                         .page_size = page_size,
                         .num_pages = 2,
                         .dtype = info_.kv_cache_dtype,
                         .layout = KvLayout::kHeadMajor,
                         .scales = {}};
  int64_t tokens = config.max_total_tokens;
  if (tokens == 0) {
    const auto page_bytes = MhaKvPool::num_bytes(pool) / 2;
    const auto affordable =
        static_cast<int64_t>(kPoolMemoryShare * static_cast<double>(available_host_bytes())) /
        static_cast<int64_t>(page_bytes) * page_size;
    tokens = std::min(int64_t{info_.limits.max_reqs} * info_.context_length, affordable);
  }
  if (tokens < 1)
    fail(ErrorCode::kOutOfMemory, "KV pool: needed ", MhaKvPool::num_bytes(pool), " bytes for a page of ",
         page_size, " tokens, free for it ",
         static_cast<int64_t>(kPoolMemoryShare * static_cast<double>(available_host_bytes())));
  require(tokens <= kMaxPoolTokens, "max_total_tokens ", tokens, ": at most ", kMaxPoolTokens,
          ", token slots are 32-bit numbers");
  const int64_t num_pages = ceil_div(tokens, int64_t{page_size}) + 1;  // and the padding page
  pool.num_pages = static_cast<int>(num_pages);
  info_.pool_bytes = MhaKvPool::num_bytes(pool);
  info_.pool_slots = (pool.num_pages - 1) * page_size;
  info_.limits.max_kv_tokens = info_.pool_slots;
  check_memory();

  pool_ = std::make_unique<MhaKvPool>(pool);
  rows_ = std::make_unique<ReqToTokenPool>(info_.limits.max_reqs, info_.context_length);
  slots_ = make_allocator(page_size, pool.num_pages);
  const BackendConfig backend{
      .device = config.device, .model = geometry, .limits = info_.limits, .page_size = page_size};
  info_.workspace_bytes = workspace_bytes(info_.resolution, backend);
  attention_ =
      create_backend(info_.resolution, BackendContext{.config = backend, .requests = *rows_, .pool = *pool_});
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
  inputs_->build(step);
  attention_->plan(inputs_->batch(), stream_);
  const auto num_rows = static_cast<int64_t>(inputs_->sampling_requests().size());
  const TensorView logits = logits_.view().slice(0, 0, num_rows);
  model_->forward(inputs_->model_input(), inputs_->batch(), *attention_, logits, stream_);
  stats_.peak_used_slots = std::max(stats_.peak_used_slots, slots_->num_used_slots());
  sample(step);
  count(step, seconds_since(start));
  advance(step, sink);
  return true;
}

void Engine::sample(const ScheduledStep& step) {
  const View<const int32_t> sampling = inputs_->sampling_requests();
  const TensorView logits = logits_.view().slice(0, 0, static_cast<int64_t>(sampling.size()));
  const View<int32_t> ids(sampled_.data(), sampling.size());
  bool greedy = true;
  for (size_t i = 0; i < sampling.size(); ++i) {
    rules_[i] = step.requests[static_cast<size_t>(sampling[i])].request->sampling_rule();
    greedy = greedy && rules_[i].temperature == 0.0f;
  }
  if (sampling.empty()) return;
  if (greedy)
    kernels::argmax(logits, ids, stream_);
  else
    kernels::sample(logits, {rules_.data(), sampling.size()}, ids, stream_);
}

void Engine::advance(const ScheduledStep& step, const OutputSink& sink) {
  size_t row = 0;
  const View<const int32_t> sampling = inputs_->sampling_requests();
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const auto& [request, num_new] = step.requests[i];
    request->num_computed += num_new;
    if (row < sampling.size() && sampling[row] == static_cast<int32_t>(i)) {
      accept_token(*request, sampled_[row], sink);
      ++row;
    }
  }
}

void Engine::accept_token(Request& request, int32_t token_id, const OutputSink& sink) {
  request.tokens.push_back(token_id);
  if (request.num_output() == 1) request.times.first_token = Clock::now();
  request.finish_reason = finish_reason_after(request, token_id);
  std::string_view text;
  if (const auto found = texts_.find(request.id); found != texts_.end()) {
    text = found->second.add(token_id, request.finish_reason);
    if (found->second.stops.matched()) request.finish_reason = FinishReason::kStop;
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
