// One request to generate: its completions while they come, and its answer, whole or streamed.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/engine/async_engine.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/http/ready_queue.h"
#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {

// What an engine gave, copied on its thread for the I/O thread.
struct OutputCopy {
  size_t choice = 0;
  std::vector<int32_t> token_ids;
  std::string text;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;
  std::string matched_stop, message;
  int num_prompt_tokens = 0;
  int num_cached_tokens = 0;
  DraftCounts drafts;
  std::vector<int32_t> prompt_ids;  // with their logprobs
  std::vector<float> prompt_logprobs, logprobs;
  std::vector<TokenLogprob> prompt_tops, tops;
};

// Copies one after another. Those that were taken back leave their memory to the next.
class OutputCopies {
 public:
  void add(size_t choice, const RequestOutput& output);
  void clear() { num_ = 0; }
  std::span<const OutputCopy> all() const { return std::span(copies_).first(num_); }

 private:
  std::vector<OutputCopy> copies_;
  size_t num_ = 0;
};

// Of the I/O thread, except for submit() and refuse().
class Generation : public ReadyHandler {
 public:
  // `on_end`: called once when there is nothing more to do.
  Generation(const Endpoint& endpoint, AsyncEngine& engine, ReadyQueue& ready_queue,
             std::shared_ptr<Exchange> exchange, ReplyHead head,
             std::function<void(const Generation&)> on_end);

  // On a worker thread: hands the prompts to the engine; their outputs come to the I/O thread. Throws
  // ApiError and Error; then what was submitted already is aborted. ApiError 503 where `max_waiting`
  // completions wait before its first (0: any number).
  void submit(GenerationJob job, int max_waiting);
  // From any thread: ends it with this error, if it has not ended by then.
  void refuse(std::exception_ptr error) noexcept;
  // Nobody listens any more: aborts what is left, and does nothing more.
  void leave() noexcept;
  // Aborts what is left; whoever still listens is told by the last outputs. From any thread.
  void abort() noexcept;
  void receive() override;

  const ReplyHead& head() const { return head_; }
  const std::vector<Choice>& choices() const { return choices_; }
  // 0: no answer was sent.
  int status() const { return status_; }
  // Of the first output that had a token; 0: none came.
  double seconds_to_first_token() const { return first_token_seconds_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  // Of a job that was refused half way.
  void abort_submitted();
  // On the engine's thread.
  void take(size_t choice, const RequestOutput& output) noexcept;
  void begin(std::vector<std::string> echoes);
  void on_output(const OutputCopy& output);
  void add_logprobs(Choice& choice, const OutputCopy& output) const;
  void stream(size_t index, std::string_view text, std::span<const AnswerDelta> deltas);
  // Answers with this error.
  void fail(const ApiError& error);
  void end();

  const Endpoint& endpoint_;
  AsyncEngine& engine_;
  ReadyQueue& ready_queue_;
  ReplyHead head_;
  std::function<void(const Generation&)> on_end_;
  Clock::time_point start_ = Clock::now();

  GenerationJob job_;
  std::unique_ptr<ReplyWriter> writer_;
  std::vector<Choice> choices_;
  std::vector<bool> started_;  // by choice: its first chunk was sent
  size_t num_left_ = 0;
  bool streaming_ = false, ended_ = false;
  int status_ = 0;
  double first_token_seconds_ = 0.0;
  OutputCopies arrived_;  // being looked at
  std::string events_;    // being written

  // From other threads.
  struct Inbox {
    std::optional<GenerationJob> job;
    std::vector<std::string> echoes;
    OutputCopies outputs;
    std::exception_ptr error;
  };
  std::mutex inbox_mutex_;
  Inbox inbox_;

  std::mutex ids_mutex_;
  std::vector<RequestId> ids_;  // of the engine
  bool aborted_ = false;
};

}  // namespace attend::serve
