#include "attend/serve/protocols/generation.h"

#include <algorithm>
#include <cmath>

#include "attend/base/error.h"
#include "attend/engine/engine.h"
#include "attend/engine/request.h"
#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

template <class T>
void assign(std::vector<T>& copy, std::span<const T> values) {
  copy.assign(values.begin(), values.end());
}

// Copies some tokens of the prompt around its first difference from the cached prefixes.
void copy_ids_at_miss(OutputCopy& copy, const Request& request) {
  constexpr size_t kNumShown = 12;
  const auto prompt = std::span(request.tokens).first(static_cast<size_t>(request.num_prompt));
  const auto position = static_cast<size_t>(*request.cache_miss_position);
  const size_t num_before = std::min(position, kNumShown);
  assign(copy.ids_before_miss, prompt.subspan(position - num_before, num_before));
  assign(copy.ids_after_miss, prompt.subspan(position, std::min(kNumShown, prompt.size() - position)));
}

void copy_into(OutputCopy& copy, const RequestOutput& output) {
  assign(copy.token_ids, output.token_ids);
  copy.text = output.text;
  copy.finish_reason = output.finish_reason;
  copy.matched_token = output.matched_token;
  copy.matched_stop = output.matched_stop;
  copy.message = output.message;
  copy.error_code = output.error_code;
  copy.num_prompt_tokens = output.request.num_prompt;
  copy.num_cached_tokens = output.request.num_cached_tokens;
  copy.num_host_cached_tokens = output.request.num_host_cached_tokens;
  copy.num_disk_cached_tokens = output.request.num_disk_cached_tokens;
  copy.drafts = output.request.draft.counts;
  assign(copy.logprobs, output.logprobs.logprobs);
  assign(copy.tops, output.logprobs.tops);
  const bool is_first = output.request.num_output() == std::ssize(output.token_ids);
  const auto num_prompt =
      is_first && output.request.params.logprobs ? static_cast<size_t>(output.request.num_prompt) : 0;
  copy.cache_miss_position = is_first ? output.request.cache_miss_position : std::nullopt;
  if (copy.cache_miss_position) copy_ids_at_miss(copy, output.request);
  assign(copy.prompt_ids, std::span(output.request.tokens).first(num_prompt));
  copy.has_prompt_logprobs = output.has_prompt_logprobs;
  assign(copy.prompt_logprobs, output.prompt_logprobs.logprobs);
  assign(copy.prompt_tops, output.prompt_logprobs.tops);
}

LogprobsView view(const std::vector<float>& logprobs, const std::vector<TokenLogprob>& tops) {
  const size_t num_top = logprobs.empty() ? 0 : tops.size() / logprobs.size();
  return {.logprobs = logprobs, .tops = tops, .num_top = static_cast<int>(num_top)};
}

// Returns the parameter that an engine's error message begins with, or "".
std::string_view rejected_param(std::string_view rejection) {
  constexpr std::string_view kParams[] = {"echo",  "logit_bias",     "logprobs", "max_new_tokens",
                                          "min_p", "min_tokens",     "n",        "prompt",
                                          "stop",  "stop_token_ids", "top_k",    "repetition_penalty"};
  const std::string_view name = rejection.substr(0, rejection.find_first_of(" :"));
  return std::ranges::find(kParams, name) == std::end(kParams) ? "" : name;
}

// Counts the tokens of the reasoning. Tokens without a part, such as a tag, count with the next part.
void count_reasoning(Choice& choice, size_t num_tokens, std::span<const AnswerDelta> deltas) {
  choice.num_unread_tokens += static_cast<int>(num_tokens);
  size_t num_bytes = 0, num_reasoning_bytes = 0;
  for (const AnswerDelta& delta : deltas) {
    num_bytes += delta.part.text.size();
    if (delta.part.kind == AnswerPart::Kind::kReasoning) num_reasoning_bytes += delta.part.text.size();
  }
  if (num_bytes == 0) return;
  const auto share = static_cast<double>(num_reasoning_bytes) / static_cast<double>(num_bytes);
  choice.num_reasoning_tokens += static_cast<int>(std::lround(choice.num_unread_tokens * share));
  choice.num_unread_tokens = 0;
}

// Assigns the new logprobs to the text of the new parts, and drops them if the parts have none. Tokens
// without a part belong to the next part, or to the last one at the end.
void assign_logprobs(Choice& choice, std::span<const AnswerDelta> deltas) {
  const auto& blocks = choice.answer->blocks();
  size_t block = Choice::kNoBlock;
  if (deltas.empty()) {
    if (choice.finish_reason == FinishReason::kNone) return;
    if (!blocks.empty() && blocks.back().kind == AnswerPart::Kind::kText) block = blocks.size() - 1;
  }
  for (const AnswerDelta& delta : deltas)
    if (delta.part.kind == AnswerPart::Kind::kText) {
      block = delta.block;
      break;
    }
  choice.logprob_blocks.resize(choice.logprobs.size(), block);
}

}  // namespace

void OutputCopies::add(size_t choice, const RequestOutput& output) {
  if (num_ == copies_.size()) copies_.emplace_back();
  copies_[num_].choice = choice;
  copy_into(copies_[num_], output);
  ++num_;
}

Generation::Generation(const Endpoint& endpoint, AsyncEngine& engine, Executor& executor,
                       ReadyQueue& ready_queue, std::shared_ptr<Exchange> exchange, ReplyHead head,
                       std::function<void(const Generation&)> on_end)
    : ReadyHandler(std::move(exchange)),
      endpoint_(endpoint),
      engine_(engine),
      executor_(executor),
      ready_queue_(ready_queue),
      head_(std::move(head)),
      on_end_(std::move(on_end)) {}

void Generation::submit(GenerationJob job, int max_waiting) {
  for (PromptInput& prompt : job.prompts) encode(prompt, job);
  std::vector<std::string> echoes;
  for (const PromptInput& prompt : job.prompts) {
    if (!job.echo) break;
    const auto* ids = std::get_if<std::vector<int32_t>>(&prompt);
    if (ids && !engine_.tokenizer())
      throw ApiError{400, "echo: the model has no tokenizer", "echo", "unsupported"};
    echoes.push_back(ids ? engine_.tokenizer()->decode_prefix(*ids, job.params.skip_special_tokens)
                         : std::get<std::string>(prompt));
  }
  const std::vector<PromptInput> prompts = job.prompts;
  const std::shared_ptr<const TokenMask> mask = job.mask;
  GenerationRequest wanted{.prompt = {},
                           .images = job.images,
                           .params = job.params,
                           .adapter = job.adapter,
                           .cache_salt = job.cache_salt,
                           .priority = job.priority};
  wanted.params.follows_echo = job.echo;
  {
    // Ids of all requests that the engine received, so that they can be aborted.
    const std::lock_guard lock(ids_mutex_);
    ids_.reserve(prompts.size());
  }
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.job = std::move(job);
    inbox_.echoes = std::move(echoes);
  }
  // Added before the first output: a waiting request is identified by its own id.
  ready_queue_.add_now(*this);
  size_t first = 0;  // first choice of the prompt
  try {
    for (const PromptInput& prompt : prompts) {
      wanted.prompt = prompt;
      wanted.mask = mask ? mask->fork() : nullptr;
      OutputCallback callback = [self = std::static_pointer_cast<Generation>(shared_from_this()),
                                 first](const RequestOutput& output) {
        self->take(first + static_cast<size_t>(output.index), output);
      };
      const bool may_be_rejected = first == 0 && max_waiting > 0;
      const std::optional<RequestId> id =
          may_be_rejected ? engine_.submit_unless_full(wanted, std::move(callback), max_waiting)
                          : engine_.submit(wanted, std::move(callback));
      if (!id) throw queue_full(max_waiting);
      first += static_cast<size_t>(wanted.params.n);
      const std::lock_guard lock(ids_mutex_);
      ids_.push_back(*id);
      if (aborted_) engine_.abort(*id);
    }
  } catch (const Error& error) {
    abort_submitted();
    ApiError rejection = to_api_error(std::current_exception());
    if (const std::string_view param = rejected_param(error.what()); !param.empty())
      rejection.param =
          endpoint_.client_field_name(param, std::holds_alternative<std::string>(wanted.prompt));
    if (dynamic_cast<const ContextLengthError*>(&error)) rejection.code = "context_length_exceeded";
    throw rejection;
  } catch (...) {
    abort_submitted();
    throw;
  }
}

// The engine encodes a text itself, but with special tokens and completely.
void Generation::encode(PromptInput& prompt, const GenerationJob& job) const {
  const int context = engine_.info().context_length;
  const int max_tokens = max_prompt_tokens(job.truncate_prompt.value_or(context), context);
  const auto* const text = std::get_if<std::string>(&prompt);
  if (!text) {
    if (job.truncate_prompt) truncate_prompt(std::get<std::vector<int32_t>>(prompt), max_tokens);
    return;
  }
  const Tokenizer* const tokenizer = engine_.tokenizer();
  if (!tokenizer || (job.add_special_tokens && !job.truncate_prompt)) return;
  if (job.truncate_prompt)
    prompt = tokenizer->encode_truncated(*text, static_cast<size_t>(max_tokens), TruncationSide::kLeft,
                                         job.add_special_tokens);
  else if (text->size() <= engine_.info().max_prompt_bytes())  // otherwise the engine rejects it
    prompt = tokenizer->encode(*text, false);
}

void Generation::abort_submitted() {
  const std::lock_guard lock(ids_mutex_);
  for (const RequestId id : ids_) engine_.abort(id);
}

// Catches exceptions instead of passing them to the engine, which would stop the calls. The client receives
// the error.
void Generation::take(size_t choice, const RequestOutput& output) noexcept {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (auto error = catch_error([&] { inbox_.outputs.add(choice, output); }))
      inbox_.error = std::move(error);
  }
  ready_queue_.add(*this);
}

void Generation::reject(std::exception_ptr error) noexcept {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.error = std::move(error);
  }
  ready_queue_.add_now(*this);
}

void Generation::receive() {
  if (build_ == Build::kRunning) return;  // the worker thread calls again
  if (build_.exchange(Build::kNone) == Build::kDone && !ended_) send_built();
  std::vector<std::string> echoes;
  std::exception_ptr error;
  bool begins = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    begins = inbox_.job.has_value();
    if (begins) job_ = std::move(*inbox_.job);
    inbox_.job.reset();
    echoes.swap(inbox_.echoes);
    std::swap(arrived_, inbox_.outputs);
    std::swap(error, inbox_.error);
  }
  const auto failed = catch_error([&] {
    if (begins) begin(std::move(echoes));
    if (error || ended_ || arrived_.all().empty()) return;
    if (is_large()) return build_on_worker();
    build();
    send_built();
  });
  if (build_ == Build::kRunning) return;
  arrived_.clear();
  if (failed) error = failed;
  if (error) fail(to_api_error(error));
}

bool Generation::is_large() const {
  constexpr size_t kMaxInlineLogprobs = 4096, kMaxTextBytes = 64 << 10;
  size_t num_logprobs = 0, num_bytes = 0, num_ended = 0;
  for (const OutputCopy& output : arrived_.all()) {
    num_logprobs += output.logprobs.size() + output.tops.size() + output.prompt_logprobs.size() +
                    output.prompt_tops.size();
    num_bytes += output.text.size();
    num_ended += output.finish_reason != FinishReason::kNone;
  }
  if (!job_.stream && num_ended == num_left_) {  // the complete reply
    num_logprobs += num_logprobs_;
    for (const Choice& choice : choices_) num_bytes += choice.text.size();
  }
  return num_logprobs > kMaxInlineLogprobs || num_bytes > kMaxTextBytes;
}

void Generation::build_on_worker() {
  build_ = Build::kRunning;
  try {
    executor_.work([self = std::static_pointer_cast<Generation>(shared_from_this())] {
      if (auto error = catch_error([&] { self->build(); })) {
        const std::lock_guard lock(self->inbox_mutex_);
        self->inbox_.error = std::move(error);
      }
      self->arrived_.clear();
      self->build_ = Build::kDone;
      self->ready_queue_.add_now(*self);
    });
  } catch (...) {
    build_ = Build::kNone;
    throw;
  }
}

void Generation::build() {
  for (const OutputCopy& output : arrived_.all())
    if (!built_.ends && !built_.error) on_output(output);
}

void Generation::send_built() {
  Built built = std::exchange(built_, {});
  if (built.error) return fail(*built.error);
  if (job_.stream) {
    status_ = 200;
    if (!streaming_) exchange().begin_stream("text/event-stream; charset=utf-8", id_headers());
    streaming_ = true;
    // Each write contains whole events, since some clients parse each read as complete events.
    if (!built.events.empty()) exchange().write(built.events);
    if (!built.ends) return;
    exchange().end_stream();
  } else {
    if (!built.ends) return;
    status_ = 200;
    exchange().reply(200, kJsonType, std::move(built.reply), id_headers());
  }
  end();
}

void Generation::begin(std::vector<std::string> echoes) {
  if (!job_.rid.empty()) head_.request_id = job_.rid;
  if (!job_.adapter.empty()) head_.model = job_.adapter;
  if (!endpoint_.has_own_ids) head_.id = head_.request_id;
  writer_ = endpoint_.make_writer(head_, job_);
  choices_.resize(job_.prompts.size() * static_cast<size_t>(job_.params.n));
  for (size_t i = 0; i < choices_.size() && job_.echo; ++i)
    choices_[i].text = echoes[i / static_cast<size_t>(job_.params.n)];
  if (job_.answer)
    for (Choice& choice : choices_) choice.answer = std::make_shared<ChatAnswer>(*job_.answer);
  started_.resize(choices_.size());
  num_left_ = choices_.size();
}

void Generation::fail(const ApiError& error) {
  if (ended_) return;
  abort();
  status_ = error_response(endpoint_.path, error).status;
  if (streaming_) {
    std::string events;
    writer_->add_failure(error, events);
    exchange().write(events);
    exchange().end_stream();
  } else {
    answer_error(exchange(), endpoint_.path, error, head_.request_id, id_headers());
  }
  end();
}

Headers Generation::id_headers() const {
  Headers headers = {{"x-request-id", head_.request_id}};
  if (!endpoint_.id_header.empty()) headers.emplace_back(endpoint_.id_header, head_.request_id);
  return headers;
}

void Generation::disconnect() noexcept {
  disconnected_ = true;
  ended_ = true;
  on_end_ = nullptr;
  abort();
}

void Generation::abort() noexcept {
  const std::lock_guard lock(ids_mutex_);
  aborted_ = true;
  for (const RequestId id : ids_) engine_.abort(id);
}

void Generation::add_logprobs(Choice& choice, const OutputCopy& output) {
  if (!job_.params.logprobs) return;
  num_logprobs_ +=
      output.logprobs.size() + output.tops.size() + output.prompt_logprobs.size() + output.prompt_tops.size();
  if (num_logprobs_ > kMaxLogprobs)
    throw ApiError{400,
                   "logprobs: the completions have more than " + std::to_string(kMaxLogprobs) +
                       " entries together; expected fewer tokens, completions or top logprobs",
                   "logprobs",
                   {}};
  if (!choice.entries) {
    choice.entries = std::make_shared<LogprobEntries>(engine_.tokenizer(), job_.params.skip_special_tokens);
    if (!output.has_prompt_logprobs) choice.entries->set_prompt(output.prompt_ids);
  }
  if (output.has_prompt_logprobs) {
    const std::string_view echo =
        std::string_view(choice.text).substr(0, choice.text.size() - output.text.size());
    choice.entries->add_prompt(output.prompt_ids, view(output.prompt_logprobs, output.prompt_tops), echo,
                               choice.logprobs);
    choice.num_prompt_logprobs = choice.logprobs.size();
  }
  // A token that ends the text is not part of it.
  std::span<const int32_t> ids = output.token_ids;
  if (output.matched_token && !ids.empty() && !endpoint_.shows_stop_token) ids = ids.first(ids.size() - 1);
  choice.entries->add(ids, view(output.logprobs, output.tops), choice.logprobs);
  if (output.finish_reason != FinishReason::kNone)
    choice.entries->end(std::span(choice.logprobs).subspan(choice.num_logprobs_sent));
}

void Generation::on_output(const OutputCopy& output) {
  const size_t index = output.choice;
  Choice& choice = choices_[index];
  choice.num_prompt_tokens = output.num_prompt_tokens;
  choice.num_cached_tokens = output.num_cached_tokens;
  choice.num_host_cached_tokens = output.num_host_cached_tokens;
  choice.num_disk_cached_tokens = output.num_disk_cached_tokens;
  if (output.cache_miss_position) {
    const auto text = [&](const std::vector<int32_t>& ids) {
      return engine_.tokenizer() ? engine_.tokenizer()->decode(ids, /*skip_special_tokens=*/false) : "";
    };
    choice.cache_miss = {*output.cache_miss_position, text(output.ids_before_miss),
                         text(output.ids_after_miss)};
  }
  choice.drafts = output.drafts;
  choice.token_ids.insert(choice.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
  // Size of the text that a streaming client has received. Echoed text is sent with the first token.
  const size_t num_sent = started_[index] ? choice.text.size() : 0;
  choice.text += output.text;
  choice.seconds = seconds();
  if (first_token_seconds_ == 0.0 && !output.token_ids.empty()) first_token_seconds_ = choice.seconds;
  choice.finish_reason = output.finish_reason;
  choice.matched_token = output.matched_token;
  choice.matched_stop = output.matched_stop;
  choice.message = output.message;
  choice.error_code = output.error_code;
  add_logprobs(choice, output);
  std::span<const AnswerDelta> deltas;
  if (choice.answer) {
    using End = ChatAnswer::End;
    // A stop string cuts the text anywhere, other than a token with which the model ends.
    const bool is_complete = output.finish_reason == FinishReason::kStop && output.matched_stop.empty();
    const End end = output.finish_reason == FinishReason::kNone ? End::kNone
                    : is_complete                               ? End::kComplete
                                                                : End::kCut;
    deltas = choice.answer->push(output.text, end);
    count_reasoning(choice, output.token_ids.size(), deltas);
    if (job_.params.logprobs) assign_logprobs(choice, deltas);
  }
  if (job_.stream) stream(index, std::string_view(choice.text).substr(num_sent), deltas);
  if (output.finish_reason == FinishReason::kNone || --num_left_ > 0) return;
  built_.ends = true;
  if (job_.stream) {
    writer_->add_last_events(choices_, built_.events);
    return writer_->keep(choices_);
  }
  for (const Choice& each : choices_)
    if (each.finish_reason == FinishReason::kError) {
      built_.error = failure_of(each, job_);
      return;
    }
  built_.reply = writer_->reply(choices_);
  writer_->keep(choices_);
}

void Generation::stream(size_t index, std::string_view text, std::span<const AnswerDelta> deltas) {
  const bool first = !started_[index];
  started_[index] = true;
  writer_->add_events({.index = index, .text = text, .deltas = deltas, .is_first = first}, choices_[index],
                      built_.events);
}

void Generation::end() {
  ended_ = true;
  // Breaks the reference cycle: on_disconnect of the exchange refers to this object.
  exchange().on_disconnect = nullptr;
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(*this);
}

}  // namespace attend::serve
