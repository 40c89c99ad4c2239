// One request to generate: its completions while they come, and its answer, whole or streamed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attend/engine/async_engine.h"
#include "attend/serve/exchange.h"
#include "attend/serve/replies.h"

namespace attend::serve {

// What an engine gave, copied on its thread for the I/O thread.
struct OutputCopy {
  std::vector<int32_t> token_ids;
  std::string text;
  FinishReason finish_reason;
  std::optional<int32_t> matched_token;
  std::string matched_stop, message;
  int num_prompt_tokens;
  int num_cached_tokens;
  std::vector<int32_t> prompt_ids;  // with their logprobs
  std::vector<float> prompt_logprobs, logprobs;
  std::vector<TokenLogprob> prompt_tops, tops;
};

// Carries tasks to the I/O thread, in their order. What a step leaves crosses over at once, so that each
// connection is written to once a step.
class Outbox {
 public:
  explicit Outbox(Executor& executor) : executor_(executor) {}
  // On its way at once.
  void push(std::function<void()> task);
  // Waits for release().
  void hold(std::function<void()> task);
  void release();

 private:
  void deliver();

  Executor& executor_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_, held_;  // held_: behind those of tasks_
};

// Of the I/O thread, except for submit().
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `on_end`: called once when there is nothing more to do.
  Generation(AsyncEngine& engine, Outbox& outbox, std::shared_ptr<Exchange> exchange, ReplyHead head,
             std::function<void(const Generation&)> on_end);

  // On a worker thread: hands the prompts to the engine; their outputs come to the I/O thread. Throws
  // ApiError and Error; then what was submitted already is aborted. ApiError 503 where `max_waiting`
  // completions wait before its first (0: any number).
  void submit(GenerationJob job, int max_waiting);
  // Ends it with this error, if it has not answered yet.
  void fail(const ApiError& error);
  // Nobody listens any more: aborts what is left, and does nothing more.
  void leave();
  // Aborts what is left; whoever still listens is told by the last outputs. From any thread.
  void abort();

  const ReplyHead& head() const { return head_; }
  const std::vector<Choice>& choices() const { return choices_; }
  // 0: no answer was sent.
  int status() const { return status_; }
  // Of the first output that had a token; 0: none came.
  double seconds_to_first_token() const { return first_token_seconds_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  void begin(GenerationJob job, std::vector<std::string> echoes);
  void on_output(size_t index, const OutputCopy& output);
  void add_logprobs(Choice& choice, const OutputCopy& output) const;
  void stream(size_t index, const std::string& text);
  void end();

  AsyncEngine& engine_;
  Outbox& outbox_;
  std::shared_ptr<Exchange> exchange_;
  ReplyHead head_;
  std::function<void(const Generation&)> on_end_;
  Clock::time_point start_ = Clock::now();

  GenerationJob job_;
  std::vector<Choice> choices_;
  std::vector<bool> started_;  // by choice: its first chunk was sent
  size_t num_left_ = 0;
  bool streaming_ = false, ended_ = false;
  int status_ = 0;
  double first_token_seconds_ = 0.0;

  std::mutex ids_mutex_;
  std::vector<RequestId> ids_;  // of the engine
  bool aborted_ = false;
};

}  // namespace attend::serve
