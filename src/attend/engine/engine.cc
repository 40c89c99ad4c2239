#include "attend/engine/engine.h"

#include <algorithm>
#include <utility>

#include "attend/backends/create.h"
#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/engine/resolve_engine.h"
#include "attend/engine/scheduler.h"
#include "attend/engine/step_inputs.h"
#include "attend/engine/step_runner.h"
#include "attend/engine/stop_matcher.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

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

Engine::Engine(const EngineConfig& config, const EngineProgress& progress)
    : random_seed_(config.random_seed) {
  if (config.log_kernels) kernels::log_kernels();
  model_spec_ = read_config(config.model_path);
  if (std::filesystem::exists(config.model_path / "tokenizer.json"))
    tokenizer_ = Tokenizer::from_path(config.model_path);
  warn_about_token_ids(config.model_path);
  ResolvedEngine resolved = resolve_engine(config, model_spec_);
  info_ = std::move(resolved.info);
  pool_ = make_kv_pool(resolved.pool);
  rows_ = std::make_unique<ReqToTokenPool>(info_.limits.max_reqs, info_.context_length, info_.device);
  slots_ = make_allocator(info_.resolution.page_size, resolved.num_pages);
  attention_ = create_backend(info_.resolution,
                              BackendContext{.config = resolved.backend, .requests = *rows_, .pool = *pool_});
  model_ = load_model(
      config.model_path, model_spec_, config.load_format, progress.weights,
      {.device = info_.device, .dtype = info_.dtype, .batch_invariant = config.deterministic_inference});
  model_->prepare(info_.limits);
  info_.weight_bytes = model_->weight_bytes();
  scheduler_ = std::make_unique<Scheduler>(info_.limits, *rows_, *slots_);
  runner_ = std::make_unique<StepRunner>(*model_, *attention_, *rows_, info_.limits, info_.device);
  if (info_.device.type == DeviceType::kCuda)
    prepare_graphs(std::move(resolved.decode_sizes), !config.disable_cuda_graph, progress);
}

Engine::~Engine() = default;

void Engine::warn_about_token_ids(const std::filesystem::path& model_path) const {
  const int vocab_size = model_spec_.vocab_size;
  for (const int32_t id : model_spec_.eos_token_ids)
    if (id >= vocab_size)
      log_warning(model_path.string(), ": eos_token_id ", id, ": config.json's vocab_size is ", vocab_size,
                  ": no request will end there");
  if (tokenizer_ && tokenizer_->vocab_size() > vocab_size)
    log_warning((model_path / "tokenizer.json").string(), ": has ids 0 to ", tokenizer_->vocab_size() - 1,
                ", config.json's vocab_size is ", vocab_size,
                ": prompts with a token that the model does not have will be refused");
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
    require(id >= 0 && id < model_spec_.vocab_size, "token id ", id, ": 0 to ", model_spec_.vocab_size - 1);
  require(static_cast<int>(prompt.size()) < info_.context_length, "prompt of ", prompt.size(),
          " tokens: the context holds ", info_.context_length, ", one of them for the answer");
  for (int32_t id : params.stop_token_ids)
    require(id >= 0 && id < model_spec_.vocab_size, "stop_token_ids: ", id, ": 0 to ",
            model_spec_.vocab_size - 1);
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

void Engine::prepare_graphs(std::vector<int> sizes, bool record, const EngineProgress& progress) {
  runner_->pad_decodes(sizes);
  if (!record) return;
  runner_->record_graphs([&](const GraphsSoFar& graphs) {
    info_.graph_bytes = graphs.num_bytes;
    if (progress.graphs) progress.graphs(graphs);
  });
  info_.graph_sizes = std::move(sizes);
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
  if (token_id != kernels::kNoToken) {
    request.tokens.push_back(token_id);
    ++stats_.num_generated_tokens;
  }
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
  if (!request.params.ignore_eos && contains(model_spec_.eos_token_ids)) return FinishReason::kStop;
  if (contains(request.params.stop_token_ids)) return FinishReason::kStop;
  // The longest that the context, the whole pool, or a step could hold.
  const auto longest = static_cast<int>(
      std::min<int64_t>(std::min(info_.context_length, info_.pool_slots), info_.limits.max_kv_tokens));
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
