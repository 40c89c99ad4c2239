#include "attend/serve/generation.h"

#include <iterator>

#include "attend/base/error.h"
#include "attend/engine/request.h"

namespace attend::serve {

namespace {

OutputCopy copy_of(const RequestOutput& output) {
  OutputCopy copy;
  copy.token_ids.assign(output.token_ids.begin(), output.token_ids.end());
  copy.text = output.text;
  copy.finish_reason = output.finish_reason;
  copy.matched_token = output.matched_token;
  copy.matched_stop = output.matched_stop;
  copy.message = output.message;
  copy.num_prompt_tokens = output.request.num_prompt;
  copy.num_cached_tokens = output.request.num_cached_tokens;
  copy.logprobs.assign(output.logprobs.logprobs.begin(), output.logprobs.logprobs.end());
  copy.tops.assign(output.logprobs.tops.begin(), output.logprobs.tops.end());
  if (output.prompt_logprobs.empty()) return copy;
  const auto& tokens = output.request.tokens;
  copy.prompt_ids.assign(tokens.begin(), tokens.begin() + output.request.num_prompt);
  copy.prompt_logprobs.assign(output.prompt_logprobs.logprobs.begin(), output.prompt_logprobs.logprobs.end());
  copy.prompt_tops.assign(output.prompt_logprobs.tops.begin(), output.prompt_logprobs.tops.end());
  return copy;
}

// Tokens with what each of them has of `logprobs` and `tops`. Without a tokenizer they have no texts.
void show_tokens(const Tokenizer* tokenizer, std::span<const int32_t> ids, std::span<const float> logprobs,
                 std::span<const TokenLogprob> tops, std::vector<ShownToken>& shown) {
  const auto text_of = [&](int32_t id) {
    return tokenizer ? tokenizer->decode({&id, 1}, /*skip_special_tokens=*/false) : std::string();
  };
  const size_t num_top = logprobs.empty() ? 0 : tops.size() / logprobs.size();
  for (size_t i = 0; i < std::min(ids.size(), logprobs.size()); ++i) {
    ShownToken token{text_of(ids[i]), ids[i], logprobs[i], {}};
    for (const TokenLogprob& top : tops.subspan(i * num_top, num_top))
      token.top.push_back({text_of(top.token_id), top.token_id, top.logprob});
    shown.push_back(std::move(token));
  }
}

}  // namespace

void Outbox::push(std::function<void()> task) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) executor_.post([this] { deliver(); });
}

void Outbox::hold(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  held_.push_back(std::move(task));
}

void Outbox::release() {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (held_.empty()) return;
    first = tasks_.empty();
    if (first)
      tasks_.swap(held_);
    else
      std::move(held_.begin(), held_.end(), std::back_inserter(tasks_));
    held_.clear();
  }
  if (first) executor_.post([this] { deliver(); });
}

void Outbox::deliver() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

Generation::Generation(AsyncEngine& engine, Outbox& outbox, std::shared_ptr<Exchange> exchange,
                       ReplyHead head, std::function<void(const Generation&)> on_end)
    : engine_(engine),
      outbox_(outbox),
      exchange_(std::move(exchange)),
      head_(std::move(head)),
      on_end_(std::move(on_end)) {}

void Generation::submit(GenerationJob job, int max_waiting) {
  std::vector<std::string> echoes;
  for (const PromptInput& prompt : job.prompts) {
    if (!job.echo) break;
    const auto* ids = std::get_if<std::vector<int32_t>>(&prompt);
    if (ids && !engine_.tokenizer())
      throw ApiError{400, "echo: the model has no tokenizer", "echo", "unsupported"};
    echoes.push_back(ids ? engine_.tokenizer()->decode(*ids) : std::get<std::string>(prompt));
  }
  const std::vector<PromptInput> prompts = job.prompts;
  GenerationRequest wanted{
      .prompt = {}, .params = job.params, .cache_salt = job.cache_salt, .priority = job.priority};
  // Before the first output, which the engine may give at once.
  outbox_.push([self = shared_from_this(), job = std::move(job), echoes = std::move(echoes)]() mutable {
    self->begin(std::move(job), std::move(echoes));
  });
  size_t first = 0;  // of the prompt's choices
  try {
    for (const PromptInput& prompt : prompts) {
      wanted.prompt = prompt;
      OutputCallback callback = [self = shared_from_this(), first](const RequestOutput& output) {
        self->outbox_.hold([self, index = first + static_cast<size_t>(output.index), copy = copy_of(output)] {
          self->on_output(index, copy);
        });
      };
      const bool may_be_refused = first == 0 && max_waiting > 0;
      const std::optional<RequestId> id =
          may_be_refused ? engine_.submit_unless_full(wanted, std::move(callback), max_waiting)
                         : engine_.submit(wanted, std::move(callback));
      if (!id) throw queue_full();
      first += static_cast<size_t>(wanted.params.n);
      const std::lock_guard lock(ids_mutex_);
      ids_.push_back(*id);
      if (aborted_) engine_.abort(*id);
    }
  } catch (...) {
    const std::lock_guard lock(ids_mutex_);
    for (const RequestId id : ids_) engine_.abort(id);
    throw;
  }
}

void Generation::begin(GenerationJob job, std::vector<std::string> echoes) {
  job_ = std::move(job);
  if (!job_.rid.empty()) head_.id = job_.rid;
  choices_.resize(job_.prompts.size() * static_cast<size_t>(job_.params.n));
  for (size_t i = 0; i < choices_.size() && job_.echo; ++i)
    choices_[i].text = echoes[i / static_cast<size_t>(job_.params.n)];
  started_.resize(choices_.size());
  num_left_ = choices_.size();
}

void Generation::fail(const ApiError& error) {
  if (ended_) return;
  status_ = error.status;
  if (streaming_) {
    exchange_->write(event(error_reply(error)) + std::string(kLastEvent));
    exchange_->end_stream();
    return end();
  }
  Headers headers = {{"x-request-id", head_.id}};
  if (error.status == 503) headers.emplace_back("Retry-After", "1");
  exchange_->reply(error.status, "application/json", error_reply(error), std::move(headers));
  end();
}

void Generation::leave() {
  ended_ = true;
  on_end_ = nullptr;
  abort();
}

void Generation::abort() {
  const std::lock_guard lock(ids_mutex_);
  aborted_ = true;
  for (const RequestId id : ids_) engine_.abort(id);
}

void Generation::add_logprobs(Choice& choice, const OutputCopy& output) const {
  const Tokenizer* tokenizer = engine_.tokenizer();
  if (!job_.params.logprobs) return;
  if (!output.prompt_ids.empty()) {
    const int32_t first = output.prompt_ids.front();
    choice.logprobs.push_back(
        {tokenizer ? tokenizer->decode({&first, 1}, false) : "", first, std::nullopt, {}});
    show_tokens(tokenizer, std::span(output.prompt_ids).subspan(1), output.prompt_logprobs,
                output.prompt_tops, choice.logprobs);
    choice.num_prompt_logprobs = choice.logprobs.size();
  }
  // A token that ends the text is no part of it; /generate tells of tokens.
  std::span<const int32_t> ids = output.token_ids;
  if (output.matched_token && !ids.empty() && head_.door != Door::kGenerate) ids = ids.first(ids.size() - 1);
  show_tokens(tokenizer, ids, output.logprobs, output.tops, choice.logprobs);
}

void Generation::on_output(size_t index, const OutputCopy& output) {
  if (ended_) return;
  Choice& choice = choices_[index];
  choice.num_prompt_tokens = output.num_prompt_tokens;
  choice.num_cached_tokens = output.num_cached_tokens;
  choice.token_ids.insert(choice.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
  const std::string echoed = !started_[index] && job_.stream ? choice.text : "";
  choice.text += output.text;
  choice.seconds = seconds();
  if (first_token_seconds_ == 0.0 && !output.token_ids.empty()) first_token_seconds_ = choice.seconds;
  choice.finish_reason = output.finish_reason;
  choice.matched_token = output.matched_token;
  choice.matched_stop = output.matched_stop;
  choice.message = output.message;
  add_logprobs(choice, output);
  if (job_.stream) stream(index, echoed + output.text);
  if (output.finish_reason == FinishReason::kNone || --num_left_ > 0 || ended_) return;
  if (job_.stream) {
    if (job_.include_usage && head_.door != Door::kGenerate)
      exchange_->write(event(usage_chunk(head_, job_, choices_)));
    exchange_->write(std::string(kLastEvent));
    exchange_->end_stream();
    return end();
  }
  for (const Choice& each : choices_)
    if (each.finish_reason == FinishReason::kError) return fail({500, each.message, {}, "generation_failed"});
  status_ = 200;
  exchange_->reply(200, "application/json", whole_reply(head_, job_, choices_), {{"x-request-id", head_.id}});
  end();
}

void Generation::stream(size_t index, const std::string& text) {
  Choice& choice = choices_[index];
  const bool first = !started_[index];
  status_ = 200;
  if (!std::exchange(streaming_, true))
    exchange_->begin_stream("text/event-stream; charset=utf-8", {{"x-request-id", head_.id}});
  started_[index] = true;
  // One line for each chunk, and each chunk whole: a client may read them one by one.
  std::string events;
  const bool finished = choice.finish_reason != FinishReason::kNone;
  const bool whole_at_once = head_.door == Door::kGenerate && finished;
  const bool has_logprobs = choice.logprobs.size() > choice.num_logprobs_sent;
  if ((first || !text.empty() || has_logprobs) && !whole_at_once) {
    events += event(text_chunk(head_, index, choice, text, first, job_));
    choice.num_logprobs_sent = choice.logprobs.size();
  }
  if (choice.finish_reason == FinishReason::kError)
    events += event(error_reply({500, choice.message, {}, "generation_failed"}));
  else if (finished)
    events += event(finish_chunk(head_, index, choice, job_));
  if (!events.empty()) exchange_->write(std::move(events));
}

void Generation::end() {
  ended_ = true;
  // The exchange holds on to this object while it listens for a client that goes.
  exchange_->on_gone = nullptr;
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(*this);
}

}  // namespace attend::serve
