#include "attend/engine/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"
#include "attend/checkpoint/model_folder.h"
#include "attend/checkpoint/weight_prefetcher.h"
#include "attend/engine/adapters.h"
#include "attend/engine/make_tiers.h"
#include "attend/engine/output/output_processor.h"
#include "attend/engine/output/pooler.h"
#include "attend/engine/resolve/resolve_draft.h"
#include "attend/engine/resolve/resolve_engine.h"
#include "attend/engine/schedule/request_memory.h"
#include "attend/engine/schedule/scheduler.h"
#include "attend/engine/speculation/adaptive_steps.h"
#include "attend/engine/speculation/model_drafter.h"
#include "attend/engine/speculation/ngram_drafter.h"
#include "attend/engine/speculation/suffix_drafter.h"
#include "attend/engine/speculation/synthetic_acceptance.h"
#include "attend/engine/step/image_steps.h"
#include "attend/engine/step/step_runner.h"
#include "attend/exec/executors.h"
#include "attend/exec/step_trace.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kv/allocator.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/state/state_slots.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Derives a different seed for each request without one (splitmix64's finalizer).
uint64_t derive_seed(uint64_t engine_seed, RequestId id) {
  uint64_t x = engine_seed + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(id);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Prepares the request's mask for its draft, and removes drafted tokens that the mask does not support.
void cut_to_mask(Request& request) {
  std::vector<int32_t>& drafted = request.draft.tokens;
  if (!request.mask || drafted.empty()) return;
  request.draft.cut_to_chain();
  drafted.resize(std::min(drafted.size(), request.mask->draft(drafted)));
}

// `draft`: executor of the draft model and its cache group, or null.
std::unique_ptr<Drafter> make_drafter(const SpeculativeOptions& options, int vocab_size, Executor* draft,
                                      DraftGroup* group) {
  if (!options.algorithm) return nullptr;
  switch (*options.algorithm) {
    case SpeculativeAlgorithm::kNgram:
      return std::make_unique<NgramDrafter>(options.ngram_min_match_window_size,
                                            options.ngram_max_match_window_size);
    case SpeculativeAlgorithm::kSuffix:
      return std::make_unique<SuffixDrafter>(options.suffix);
    case SpeculativeAlgorithm::kStandalone:
    case SpeculativeAlgorithm::kEagle:
    case SpeculativeAlgorithm::kEagle3:
    case SpeculativeAlgorithm::kNextn:
      return std::make_unique<ModelDrafter>(*draft, *group, vocab_size, options);
  }
  return nullptr;
}

// Bytes that the largest sum of ranks passes to another GPU at once: larger ones are divided. Rows of logits
// must fit.
size_t rank_slot_bytes(const ExecutorConfig& config) {
  constexpr int64_t kMaxBytes = 64 << 20;
  const int64_t row_bytes = config.model.hidden_size * static_cast<int64_t>(size_of(config.placement.dtype));
  const int64_t logits_bytes = 4 * int64_t{config.model.head_size()};
  return static_cast<size_t>(
      std::max(logits_bytes, std::min(kMaxBytes, config.backend.limits.max_tokens * row_bytes)));
}

// Creates one executor per config, on the same tables. Those of windows and states are the target's.
// `weights`: prefetcher of the first one's checkpoint.
std::unique_ptr<Executors> make_executors(const EngineConfig& config, std::vector<ExecutorConfig> configs,
                                          const CacheTables& tables,
                                          std::unique_ptr<WeightPrefetcher> weights, StepTrace* trace) {
  std::unique_ptr<RankTeam> ranks;
  if (config.tp_size > 1) {
    std::vector<Device> devices;
    size_t slot_bytes = 0;
    for (const ExecutorConfig& executor : configs) {
      if (std::ssize(devices) < config.tp_size) devices.push_back(executor.placement.device);
      slot_bytes = std::max(slot_bytes, rank_slot_bytes(executor));
    }
    ranks = std::make_unique<RankTeam>(devices, slot_bytes, config.watchdog_timeout);
  }
  std::vector<std::unique_ptr<ModelExecutor>> executors;
  for (ExecutorConfig& executor : configs) {
    const bool of_target = std::ssize(executors) < config.tp_size;
    const int rank = executor.placement.rank;
    if (ranks) executor.placement.ranks = &ranks->communicator(rank);
    std::optional<cuda::DeviceScope> device;
    if (ranks && config.on_gpu()) device.emplace(executor.placement.device);
    executors.push_back(std::make_unique<ModelExecutor>(
        std::move(executor), of_target ? tables : CacheTables{.rows = tables.rows},
        std::exchange(weights, nullptr), rank == 0 ? trace : nullptr));
  }
  return std::make_unique<Executors>(std::move(executors), std::move(ranks));
}

// Distance of the positions at which the state of an answer is saved, at least.
constexpr int kAnswerInterval = 64;

// Returns the bytes of the longest token, special tokens included.
size_t longest_token(const Tokenizer& tokenizer) {
  const std::vector<std::string> tokens = tokenizer.token_bytes();
  size_t longest = 0;
  for (int32_t id = 0; id < std::ssize(tokens); ++id) {
    const std::string& token = tokens[static_cast<size_t>(id)];
    longest = std::max(longest, token.empty() ? tokenizer.decode({&id, 1}, false).size() : token.size());
  }
  return longest;
}

// Accepts the first tokens of the draft, at most as many as follow one another.
void accept_first(RequestDraft& draft, int num_accepted) {
  for (int idx = 0; idx < num_accepted && draft.parent(idx) == idx - 1; ++idx) draft.accepted.push_back(idx);
}

std::string names_of(const std::vector<AdapterPath>& adapters) {
  std::string names;
  for (const AdapterPath& adapter : adapters) names += (names.empty() ? "" : ", ") + adapter.name;
  return names.empty() ? "none" : names;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Engine::Engine(const EngineConfig& config, const EngineProgress& progress)
    : config_(config), random_seed_(config.random_seed) {
  if (config.log_kernels) kernels::log_kernels();
  require(!config.model_path.empty() || (config.model && config.load_format == LoadFormat::kDummy),
          "model_path: expected a model directory, or a model with dummy weights");
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(config.model_path);
  model_spec_ = config.model ? *config.model : read_config(*checkpoint);
  configured_ = model_spec_;
  if (!config.model) config_text_ = checkpoint->config().value().dump();
  // Embedding models are published without a head, and it is not read.
  if (config.pooling) model_spec_.tie_word_embeddings = true;
  const bool has_files = config.load_format != LoadFormat::kDummy;
  // Prefetching needs a second thread.
  std::unique_ptr<WeightPrefetcher> weights;
  if (has_files && num_threads() > 1) weights = std::make_unique<WeightPrefetcher>(*checkpoint);
  ResolvedEngine resolved = resolve_engine(config, model_spec_, has_files ? checkpoint : nullptr);
  info_ = std::move(resolved.info);
  if (!config.lora_paths.empty()) require_adapters();
  adapters_ = std::make_unique<Adapters>(config.lora_paths);
  overlaps_ = info_.overlap_schedule;
  recomputes_longrope_ = config.recompute_longrope;
  trace_ = std::make_unique<StepTrace>();
  rows_ = std::make_unique<ReqToTokenPool>(info_.limits.max_reqs, info_.context_length);
  slots_ = make_allocator(info_.page_size, resolved.num_pages);
  window_slots_ = make_window_slots(resolved.executors.front().storage);
  if (model_spec_.has_states())
    state_slots_ = std::make_unique<StateSlots>(rows_->num_rows(), info_.num_state_snapshots,
                                                info_.limits.max_draft_reqs);
  executors_ =
      make_executors(config, std::move(resolved.executors),
                     {.rows = *rows_, .window_slots = window_slots_.get(), .state_slots = state_slots_.get()},
                     std::move(weights), trace_.get());
  executors_->complete(info_.executors);
  if (!config.model_path.empty()) tokenizer_ = Tokenizer::find(*checkpoint);
  add_tokenizer_eos();
  if (tokenizer_ && model_spec_.vision) find_markers(*tokenizer_, model_spec_.vision->markers);
  if (tokenizer_) info_.max_token_bytes = longest_token(*tokenizer_);
  if (!tokenizer_) tokenizer_note_ = note_on_missing(MissingFile::kTokenizer, config.model_path);
  warn_about_token_ids(config.model_path);
  std::vector<std::unique_ptr<CacheGroup>> groups = make_cache_groups(
      model_spec_.caches(), *rows_, *slots_,
      {.window = window_slots_.get(),
       .states = state_slots_.get(),
       .state_options = {.page_size = info_.page_size,
                         .grid = info_.page_size,
                         .interval = std::max(info_.page_size, info_.state_snapshot_interval),
                         .answer_interval = round_up(kAnswerInterval, info_.page_size)}});
  DraftGroup* draft_group = nullptr;
  Executor* const draft = executors_->draft();
  const bool has_head = draft != nullptr && draft->spec().draft;
  if (draft != nullptr) {
    if (!has_head)
      check_draft_vocabulary(config, {.tokenizer = tokenizer(), .vocab_size = model_spec_.vocab_size},
                             draft->spec());
    auto group = std::make_unique<DraftGroup>(*rows_, info_.page_size, resolved.num_pages, has_head);
    draft_group = group.get();
    groups.push_back(std::move(group));
  }
  memory_ = std::make_unique<RequestMemory>(info_.limits.max_kv_tokens, *rows_, *slots_, info_.prefix_cache,
                                            std::move(groups), has_head);
  if (config.hierarchical_cache.enabled)
    memory_->use_tiers(make_tiers(config, info_, memory_->page_data(), executors_->page_bytes(),
                                  executors_->target().stream(), checkpoint.get()));
  drafter_ = make_drafter(info_.speculation, model_spec_.vocab_size, draft, draft_group);
  if (info_.speculation.adaptive)
    adaptive_ = std::make_unique<AdaptiveSteps>(info_.speculation.adaptive_rows, info_.speculation.num_steps);
  if (const double length = info_.speculation.synthetic_accept_length; length > 0.0)
    synthetic_ = std::make_unique<SyntheticAcceptance>(length);
  scheduler_ =
      std::make_unique<Scheduler>(info_.limits, *memory_, config.schedule,
                                  DraftRules{.max_tokens = drafter_ ? longest_path(info_.speculation) : 0,
                                             .max_reqs = info_.speculation.disable_by_batch_size,
                                             .adaptive = adaptive_.get(),
                                             .tree_slots = num_tree_slots(info_.speculation)});
  if (config.pooling) pooler_ = std::make_unique<Pooler>(*config.pooling);
  if (progress.resolved) progress.resolved(*this);
  executors_->load(progress.weights);
  adapters_->set_model(executors_->adapter_layers());
  runner_ = std::make_unique<StepRunner>(
      executors_->target(), CommonPrefix(*rows_, info_.page_size, info_.target().cascade_min_keys),
      trace_.get(), has_head);
  if (ImageEncoder* const encoder = executors_->image_encoder())
    image_steps_ = std::make_unique<ImageSteps>(*encoder, executors_->target().stream());
  outputs_ =
      std::make_unique<OutputProcessor>(tokenizer(), model_spec_.eos_token_ids, memory_->longest_request(),
                                        *runner_, stats_.num_generated_tokens);
  if (!config.disable_cuda_graph) executors_->record_graphs(progress.graphs);
  executors_->complete(info_.executors);
}

Engine::~Engine() = default;

std::string Engine::failure() const { return executors_->failure(); }

void Engine::require_adapters() const {
  if (!info_.no_adapters.empty()) fail(ErrorCode::kUnsupported, "LoRA adapters: ", info_.no_adapters);
}

void Engine::load_adapter(const AdapterPath& adapter) const {
  require_adapters();
  adapters_->load(adapter);
}

void Engine::unload_adapter(std::string_view name) const {
  require_adapters();
  adapters_->unload(name);
}

void Engine::add_dummy_adapter(const std::string& name, int rank) const {
  require_adapters();
  adapters_->add_dummy(name, rank);
}

std::vector<AdapterPath> Engine::adapters() const { return adapters_->list(); }

void Engine::add_tokenizer_eos() {
  const std::optional<int32_t> id = tokenizer_ ? tokenizer_->eos_id() : std::nullopt;
  std::vector<int32_t>& ids = model_spec_.eos_token_ids;
  if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
}

void Engine::warn_about_token_ids(const std::filesystem::path& model_path) const {
  const int vocab_size = model_spec_.vocab_size;
  for (const int32_t id : model_spec_.eos_token_ids)
    if (id >= vocab_size)
      log_warning(model_path.string(), ": eos_token_id ", id, ": config.json's vocab_size is ", vocab_size,
                  ": no request will end at this token");
  if (tokenizer_ && tokenizer_->vocab_size() > vocab_size)
    log_warning((model_path / "tokenizer.json").string(), ": ids 0 to ", tokenizer_->vocab_size() - 1,
                ", config.json's vocab_size is ", vocab_size,
                ": prompts with a token outside of this range will be rejected");
}

std::unique_ptr<Request> Engine::prepare(GenerationRequest source) const {
  const SamplingParams& params = source.params;
  if (pooler_) fail(ErrorCode::kUnsupported, "the engine pools inputs into vectors and generates no text");
  check(params);
  if (const auto* text = std::get_if<std::string>(&source.prompt)) {
    if (!tokenizer_)
      fail(ErrorCode::kUnsupported, "prompt text: the model directory has no tokenizer.json", tokenizer_note_,
           "; expected input_ids");
    if (text->size() > info_.max_prompt_bytes())
      throw ContextLengthError("prompt of " + std::to_string(text->size()) + " bytes: the context holds " +
                               std::to_string(info_.context_length) + " tokens of at most " +
                               std::to_string(info_.max_token_bytes) + " bytes");
    std::string with_placeholders = *text;
    if (!source.images.empty()) write_placeholders(model_spec_, with_placeholders);
    source.prompt = tokenizer_->encode(with_placeholders);
  }
  auto& prompt = std::get<std::vector<int32_t>>(source.prompt);
  require(!prompt.empty(), "prompt: no tokens");
  std::shared_ptr<const PromptImages> images;
  if (!source.images.empty()) {
    if (!info_.no_images.empty()) fail(ErrorCode::kUnsupported, "images: ", info_.no_images);
    images = place_images(model_spec_, source.images, prompt);
  }
  for (int32_t id : prompt) {
    require(id >= 0 && id < model_spec_.vocab_size, "token id ", id, ": 0 to ", model_spec_.vocab_size - 1);
    require(images || id != model_spec_.image_token_id, "token id ", id, ": the placeholder of an image",
            info_.no_images.empty() ? ", but the request has no image" : "; " + info_.no_images);
  }
  if (static_cast<int>(prompt.size()) >= info_.context_length)
    throw ContextLengthError("prompt of " + std::to_string(prompt.size()) +
                             " tokens: the context length is " + std::to_string(info_.context_length) +
                             ", including one token of output");
  for (int32_t id : params.stop_token_ids)
    require(id >= 0 && id < model_spec_.vocab_size, "stop_token_ids: ", id, ": 0 to ",
            model_spec_.vocab_size - 1);
  for (const auto& [id, bias] : params.logit_bias)
    require(id >= 0 && id < model_spec_.vocab_size, "logit_bias: token id ", id, ": 0 to ",
            model_spec_.vocab_size - 1);
  require(params.stop.empty() || tokenizer_.has_value(), "stop: stop strings require a tokenizer.json");
  require(!params.echo || tokenizer_.has_value(), "echo: requires a tokenizer.json");
  require(source.num_skipped >= 0 && source.num_skipped < static_cast<int>(prompt.size()), "num_skipped ",
          source.num_skipped, ": 0 to ", prompt.size() - 1, ", all tokens of the prompt but the last");
  require(source.num_skipped == 0 || !memory_->caches(),
          "num_skipped: expected an engine without a prefix cache, which would share tokens without K/V");
  require(source.num_skipped == 0 || !params.prompt_logprobs, "num_skipped: expected no prompt_logprobs");

  auto request = std::make_unique<Request>();
  if (!source.adapter.empty()) {
    require_adapters();
    request->adapter = adapters_->find(source.adapter);
    if (request->adapter == nullptr)
      fail(ErrorCode::kInvalidArgument, "adapter ", source.adapter,
           ": not loaded; loaded are: ", names_of(adapters_->list()));
    source.cache_salt = request->adapter->salt + source.cache_salt;
  }
  request->num_prompt = static_cast<int>(prompt.size());
  request->tokens = std::move(prompt);
  request->tokens.reserve(static_cast<size_t>(
      std::min<int64_t>(info_.context_length, int64_t{request->num_prompt} + params.max_new_tokens)));
  if (images) request->keys = image_keys(*images, request->tokens);
  request->images = std::move(images);
  if (LogitsProcessor::needed(params))
    request->logits_processor =
        std::make_shared<LogitsProcessor>(params, std::span(request->tokens), stop_token_ids(params));
  request->mask = std::move(source.mask);
  request->params = std::move(source.params);
  request->priority = source.priority;
  request->deadline = source.deadline;
  request->num_skipped = source.num_skipped;
  request->cache_salt = model_spec_.kv_salt(request->num_prompt) + source.cache_salt;
  if (const int length = model_spec_.longrope_length();
      recomputes_longrope_ && request->num_prompt <= length) {
    request->max_rope_len = length;
    request->long_salt = model_spec_.kv_salt(length + 1) + source.cache_salt;
  }
  request->times.submitted = Clock::now();
  scheduler_->check(*request);
  return request;
}

std::vector<std::unique_ptr<Request>> Engine::prepare(PoolingRequest source) const {
  if (!pooler_) fail(ErrorCode::kUnsupported, "the engine generates text and does not pool inputs");
  require(!source.inputs.empty(), "inputs: none; expected at least one");
  std::vector<std::vector<int32_t>> inputs;
  for (auto& input : source.inputs) {
    if (const auto* text = std::get_if<std::string>(&input)) {
      if (!tokenizer_)
        fail(ErrorCode::kUnsupported, "the model directory has no tokenizer.json", tokenizer_note_,
             ": expected token ids");
      require(text->size() <= info_.max_prompt_bytes(), "input of ", text->size(),
              " bytes: the context holds ", info_.context_length, " tokens of at most ",
              info_.max_token_bytes, " bytes");
      input = tokenizer_->encode(*text);
    }
    inputs.push_back(std::move(std::get<std::vector<int32_t>>(input)));
  }
  check_inputs(inputs, std::min(info_.context_length, info_.limits.max_tokens), model_spec_.vocab_size);
  check_token_types(source.token_types, inputs, model_spec_.num_token_types());
  std::vector<std::unique_ptr<Request>> requests;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& request = *requests.emplace_back(std::make_unique<Request>());
    request.num_prompt = static_cast<int>(inputs[i].size());
    request.tokens = std::move(inputs[i]);
    if (!source.token_types.empty()) request.token_types = std::move(source.token_types[i]);
    request.pools = true;
    request.params.n = static_cast<int>(inputs.size());
    request.params.max_new_tokens = 0;
    request.priority = source.priority;
    request.deadline = source.deadline;
    request.times.submitted = Clock::now();
    scheduler_->check(request);
  }
  return requests;
}

std::vector<int32_t> Engine::stop_token_ids(const SamplingParams& params) const {
  std::vector<int32_t> ids = params.stop_token_ids;
  if (!params.ignore_eos)
    std::copy_if(model_spec_.eos_token_ids.begin(), model_spec_.eos_token_ids.end(), std::back_inserter(ids),
                 [&](int32_t id) { return id < model_spec_.vocab_size; });
  return ids;
}

void Engine::enqueue(std::unique_ptr<Request> request, RequestId id) {
  const int num_completions = request->params.n;
  std::vector<std::unique_ptr<Request>> requests;
  requests.reserve(static_cast<size_t>(num_completions));
  for (int i = 1; i < num_completions; ++i) {
    auto& completion = *requests.emplace_back(std::make_unique<Request>(*request));
    completion.tokens.reserve(request->tokens.capacity());
    if (completion.logits_processor)
      completion.logits_processor = std::make_shared<LogitsProcessor>(*request->logits_processor);
    if (completion.mask) completion.mask = request->mask->fork();
  }
  requests.push_back(std::move(request));
  enqueue(std::move(requests), id);
}

// Queues all requests, or none if it throws.
void Engine::enqueue(std::vector<std::unique_ptr<Request>> requests, RequestId id) {
  const auto num_requests = static_cast<int>(requests.size());
  try {
    outputs_->begin(id, num_requests);
    for (int i = 0; i < num_requests; ++i) {
      std::unique_ptr<Request>& request = requests[static_cast<size_t>(i)];
      const std::optional<uint64_t> seed = request->params.seed;
      request->group = id;
      request->id = id + i;
      request->index = i;
      request->seed = seed ? *seed + static_cast<uint64_t>(i) : derive_seed(random_seed_, request->id);
      outputs_->begin_completion(*request);
      scheduler_->submit(std::move(request));
    }
  } catch (...) {
    for (RequestId request = id; request < id + num_requests; ++request) scheduler_->abort(request);
    outputs_->forget(id);
    throw;
  }
}

RequestId Engine::submit(GenerationRequest source) {
  std::unique_ptr<Request> request = prepare(std::move(source));
  const RequestId id = next_id_;
  next_id_ += request->params.n;
  enqueue(std::move(request), id);
  return id;
}

RequestId Engine::submit(PoolingRequest source) {
  std::vector<std::unique_ptr<Request>> requests = prepare(std::move(source));
  const RequestId id = next_id_;
  next_id_ += std::ssize(requests);
  enqueue(std::move(requests), id);
  return id;
}

RequestId Engine::submit(std::vector<int32_t> prompt, const SamplingParams& params) {
  return submit(GenerationRequest{.prompt = std::move(prompt), .params = params});
}

RequestId Engine::submit(std::string_view prompt, const SamplingParams& params) {
  return submit(GenerationRequest{.prompt = std::string(prompt), .params = params});
}

bool Engine::step(const OutputSink& sink) {
  ensure(!executors_->released().any(), "a step of an engine with released memory");
  const auto start = Clock::now();
  const std::vector<DroppedRequest> dropped = scheduler_->drain_dropped(start);
  outputs_->set_time(start);
  for (const auto& [request, reason] : dropped) {
    end_drafts(*request);
    outputs_->end(*request, FinishReason::kAbort, reason, sink);
  }
  if (in_flight_ != nullptr && in_flight_->num_live() == 0) discard_step();
  const bool did_work = in_flight_ != nullptr || begin_step(start, sink);
  if (in_flight_ != nullptr) end_step(*in_flight_, sink);
  outputs_->rethrow_sink_error();
  return did_work || !dropped.empty();
}

// Waits for a step without live requests.
void Engine::discard_step() {
  try {
    runner_->wait(*std::exchange(in_flight_, nullptr));
  } catch (const Error&) {  // no request is left to report it to, and the next step fails too
  }
}

void Engine::finish_in_flight(const OutputSink& sink) {
  const bool overlaps = std::exchange(overlaps_, false);
  if (in_flight_ != nullptr) end_step(*in_flight_, sink);
  overlaps_ = overlaps;
  outputs_->rethrow_sink_error();
}

bool Engine::begin_step(Clock::time_point start, const OutputSink& sink) {
  if (image_steps_) encode_images(sink);
  ScheduledStep& step = schedule();
  stats_.num_cached_tokens = memory_->num_cached_tokens();
  stats_.num_evicted_tokens = memory_->num_evicted_pages() * memory_->page_size();
  stats_.num_recoveries = scheduler_->num_recoveries();
  if (step.requests.empty()) {
    // Returns early, so that requests can be submitted and aborted meanwhile.
    if (scheduler_->waits_for_image()) return true;
    memory_->start_copies();
    if (scheduler_->wait(std::chrono::milliseconds(5))) return true;
    if (memory_->wait_for_copies(std::chrono::milliseconds(5))) return true;
    ensure(scheduler_->idle(), "scheduler: requests are waiting, but none can be admitted");
    return false;
  }
  step_start_ = start;
  try {
    memory_->start_copies();
    runner_->launch(step);
    in_flight_ = &step;
  } catch (const std::exception& error) {
    fail_step(step, error.what(), sink);
  }
  return true;
}

void Engine::encode_images(const OutputSink& sink) {
  const TraceSpan span(trace_.get(), "images");
  const auto failure = image_steps_->advance(scheduler_->running());
  if (!failure) return;
  outputs_->end(*failure->request, FinishReason::kError, failure->message, sink);
  end_drafts(*scheduler_->finish(failure->request->id));
}

ScheduledStep* Engine::begin_overlapped_step(const ScheduledStep& step) {
  if (!overlaps_ || step.mode != ForwardMode::kDecode || runner_->num_shared_keys() > 0) return nullptr;
  const auto needs_host = [](const ScheduledRequest& part) {
    return part.request != nullptr &&
           (part.request->logits_processor || part.request->mask || part.request->params.logprobs);
  };
  if (std::ranges::any_of(step.requests, needs_host)) return nullptr;
  const TraceSpan span(trace_.get(), "schedule");
  return scheduler_->schedule_overlapped(memory_->longest_request());
}

// If possible, launches the next step before it waits for this one.
void Engine::end_step(ScheduledStep& step, const OutputSink& sink) {
  ScheduledStep* const next = begin_overlapped_step(step);
  std::string failure;  // of the next step's launch
  if (next != nullptr) {
    try {
      memory_->start_copies();
      runner_->launch(*next);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  in_flight_ = failure.empty() ? next : nullptr;
  const auto step_start = step_start_;
  try {
    const View<const int32_t> tokens = runner_->wait(step);
    const auto step_end = step_start_ = Clock::now();
    outputs_->set_time(step_end);
    if (drafter_) {
      accept_drafts(step, tokens);
      drafter_->observe(step, runner_->hidden_states());
    }
    if (state_slots_) keep_accepted_states(step);
    stats_.peak_used_slots = std::max(stats_.peak_used_slots, num_used_slots());
    count(step, std::chrono::duration<double>(step_end - step_start).count());
    {
      const TraceSpan span(trace_.get(), "output");
      advance(step, tokens, sink);
    }
    if (to_phase(step.mode) == Phase::kDecode) {
      double host_seconds = in_flight_ == nullptr ? seconds_since(step_end) : 0.0;
      const double draft_seconds = drafter_ ? drafter_->device_seconds() : 0.0;
      if (!step.ahead)
        host_seconds += std::chrono::duration<double>(step_end - step_start).count() -
                        runner_->device_seconds() - draft_seconds;
      stats_.decode_host_seconds += host_seconds;
      stats_.draft_seconds += draft_seconds;
      stats_.decode_device_seconds += runner_->device_seconds();
    }
  } catch (const std::exception& error) {
    fail_step(step, error.what(), sink);
  }
  if (!failure.empty()) fail_step(*next, failure, sink);
  if (trace_->recording())
    trace_->add_step({to_string(step.mode), static_cast<int>(step.requests.size()), step.num_tokens},
                     step_start, Clock::now());
}

ScheduledStep& Engine::schedule() {
  ScheduledStep* step = nullptr;
  {
    const TraceSpan span(trace_.get(), "schedule");
    step = &scheduler_->schedule();
  }
  if (drafter_ && !step->requests.empty()) draft(*step);
  return *step;
}

bool Engine::abort(RequestId id, const OutputSink& sink) {
  require(!outputs_->in_sink(), "abort of request ", id, ": inside of a sink, expected between steps");
  const int num_completions = outputs_->num_completions(id);
  if (num_completions == 0) return false;
  outputs_->set_time(Clock::now());
  for (int i = 0; i < num_completions; ++i)
    if (const std::unique_ptr<Request> request = scheduler_->abort(id + i)) {
      end_drafts(*request);
      outputs_->end(*request, FinishReason::kAbort, "aborted", sink);
    }
  outputs_->rethrow_sink_error();
  return true;
}

int Engine::num_running() const { return scheduler_->num_running(); }
int Engine::num_waiting() const { return scheduler_->num_waiting(); }
int64_t Engine::num_preemptions() const { return scheduler_->num_preemptions(); }
int Engine::num_used_slots() const {
  return info_.pool_slots - memory_->num_available_pages() * memory_->page_size();
}
int Engine::num_cached_slots() const { return memory_->num_cached_pages() * memory_->page_size(); }
int Engine::num_evictable_slots() const { return memory_->num_evictable_pages() * memory_->page_size(); }
CacheTierStats Engine::cache_tiers() const { return memory_->tier_stats(); }
void Engine::flush_cache() { memory_->flush(); }
void Engine::check_memory() const { scheduler_->check_memory(); }
void Engine::check_weights() const { executors_->check_weights(); }

// Does not throw: a failure for a request ends that request.
void Engine::advance(const ScheduledStep& step, View<const int32_t> tokens, const OutputSink& sink) {
  size_t row = 0, next_row = 0;
  int64_t token = 0, next_token = 0;
  const View<const int32_t> sampling = runner_->sampling_requests();
  if (!step.advanced) scheduler_->advance();
  for (size_t i = 0; i < step.requests.size(); ++i, row = next_row, token = next_token) {
    const ScheduledRequest& part = step.requests[i];
    Request* const request = part.request;
    next_token = token + part.num_new;
    if (request != nullptr && request->pools) {
      pool(*request, runner_->hidden_states().slice(0, token, next_token), sink);
      continue;
    }
    if (row >= sampling.size() || sampling[row] != static_cast<int32_t>(i)) continue;
    next_row = row + 1 + static_cast<size_t>(part.num_draft);
    if (request == nullptr) continue;
    if (request->num_output() == 0)
      executors_->check_saturation(rows_->row(request->row).first(static_cast<size_t>(request->num_prompt)));
    request->num_pending = part.num_accepted - part.num_kept;
    accepted_rows_.assign(1, row);
    for (const int32_t idx : request->draft.accepted)
      accepted_rows_.push_back(row + 1 + static_cast<size_t>(idx));
    outputs_->accept(*request, tokens, accepted_rows_, sink);
    if (request->finish_reason != FinishReason::kNone) end_drafts(*scheduler_->finish(request->id));
  }
}

void Engine::pool(Request& request, const TensorView& hidden_states, const OutputSink& sink) {
  try {
    outputs_->accept_vector(request, pooler_->pool(hidden_states, executors_->target().stream()), sink);
  } catch (const std::exception& error) {
    outputs_->end(request, FinishReason::kError, error.what(), sink);
  }
  scheduler_->finish(request.id);
}

void Engine::fail_step(const ScheduledStep& step, std::string_view message, const OutputSink& sink) {
  const int num_live = step.num_live();
  if (num_live == 0) return;
  ++stats_.num_failed_steps;
  log_warning("step failed, ending its ", num_live, " requests: ", message);
  outputs_->set_time(Clock::now());
  for (const ScheduledRequest& part : step.requests) {
    if (part.request == nullptr) continue;
    outputs_->end(*part.request, FinishReason::kError, message, sink);
    end_drafts(*scheduler_->finish(part.request->id));
  }
  scheduler_->fail_step();
}

void Engine::draft(const ScheduledStep& step) {
  const TraceSpan span(trace_.get(), "draft");
  try {
    drafter_->draft(step);
    for (const ScheduledRequest& part : step.requests) cut_to_mask(*part.request);
  } catch (const std::exception& error) {
    try_log_warning("drafting failed, running the step without drafts: ", error.what());
    for (const ScheduledRequest& part : step.requests) part.request->draft.clear();
  }
  scheduler_->settle_drafts();
}

void Engine::end_drafts(const Request& request) {
  if (!drafter_) return;
  try {
    drafter_->end(request);
  } catch (const std::exception& error) {
    try_log_warning("drafting: a request's output is not used for later drafts: ", error.what());
  }
}

// Descends from the request's last token to the drafted token that equals the sampled one.
void Engine::accept_sampled(const ScheduledRequest& part, View<const int32_t> tokens, size_t first_row) {
  RequestDraft& draft = part.request->draft;
  int last = -1;
  for (int idx = 0; idx < part.num_draft; ++idx) {
    const size_t next = first_row + static_cast<size_t>(idx) + 1;
    if (draft.parent(idx) != last ||
        draft.tokens[static_cast<size_t>(idx)] != tokens[first_row + static_cast<size_t>(last + 1)])
      continue;
    // A row without an allowed token fails as the first row of the next step.
    if (!runner_->allows(next, tokens[next])) return;
    draft.accepted.push_back(last = idx);
  }
}

void Engine::accept_drafts(ScheduledStep& step, View<const int32_t> tokens) {
  const DraftCounts before = stats_.drafts;
  int num_drafts = 0;
  size_t row = 0;
  const View<const int32_t> sampling = runner_->sampling_requests();
  for (size_t i = 0; i < step.requests.size(); ++i) {
    if (row >= sampling.size() || sampling[row] != static_cast<int32_t>(i)) continue;
    ScheduledRequest& part = step.requests[i];
    const size_t first_row = std::exchange(row, row + 1 + static_cast<size_t>(part.num_draft));
    if (part.request == nullptr || part.request->num_output() == 0) continue;
    RequestDraft& draft = part.request->draft;
    draft.accepted.clear();
    if (synthetic_)
      accept_first(draft, synthetic_->next(part.num_draft));
    else
      accept_sampled(part, tokens, first_row);
    part.num_accepted = static_cast<int>(draft.accepted.size());
    while (part.num_kept < part.num_accepted &&
           draft.accepted[static_cast<size_t>(part.num_kept)] == part.num_kept)
      ++part.num_kept;
    if (part.num_draft > 0 && !drafter_->chooses_length())
      draft.limit =
          part.num_rejected() > 0 ? part.num_accepted + 1 : std::max(draft.limit, 2 * part.num_draft);
    draft.counts.add(part.num_draft, part.num_accepted);
    stats_.drafts.add(part.num_draft, part.num_accepted);
    num_drafts += part.num_draft > 0 ? 1 : 0;
  }
  if (!adaptive_ || step.num_decodes == 0) return;
  const auto num_accepted = static_cast<double>(stats_.drafts.num_accepted - before.num_accepted);
  adaptive_->observe(step.num_decodes,
                     num_drafts > 0 ? std::optional(num_accepted / num_drafts) : std::nullopt);
}

// Called before the requests advance, which drops entries of saved states.
void Engine::keep_accepted_states(const ScheduledStep& step) {
  VerifiedStates& verified = runner_->verified();
  verified.clear();
  for (const ScheduledRequest& part : step.requests) {
    if (part.num_draft == 0) continue;
    const Request* const request = part.request;
    const int num_computed = request == nullptr ? 0 : request->num_computed;
    const int num_accepted = request == nullptr ? 0 : part.num_new - part.num_rejected();
    const RequestRow row = request == nullptr ? kPaddingRow : request->row;
    verified.parts.push_back({.row = row,
                              .num_computed = num_computed,
                              .num_accepted = num_accepted,
                              .num_rejected = part.num_new - num_accepted});
    for (int i = 1; i <= part.num_new; ++i)
      verified.save_slots.push_back(i <= num_accepted ? state_slots_->save_slot(row, num_computed + i) : 0);
  }
}

void Engine::count(const ScheduledStep& step, double seconds) {
  ++stats_.num_steps;
  stats_.num_overlapped_steps += step.ahead ? 1 : 0;
  if (to_phase(step.mode) == Phase::kDecode) {
    stats_.num_decode_tokens += step.num_tokens - step.num_rejected();
    stats_.num_cascade_steps += runner_->num_shared_keys() > 0 ? 1 : 0;
    stats_.decode_seconds += seconds;
  } else {
    stats_.num_prefill_tokens += step.num_tokens;
    stats_.prefill_seconds += seconds;
  }
}

}  // namespace attend
