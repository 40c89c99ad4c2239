// Generation: one request to generate. It collects the completions and writes the response, complete or
// streamed.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/async_engine.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/http/ready_queue.h"
#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/errors.h"

namespace attend::serve {

// Engine output, copied on the engine's thread for the I/O thread.
struct OutputCopy {
  size_t choice = 0;
  std::vector<int32_t> token_ids;
  std::string text;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;
  std::string matched_stop, message;
  ErrorCode error_code = ErrorCode::kInternal;
  int num_prompt_tokens = 0;
  int num_cached_tokens = 0, num_host_cached_tokens = 0, num_disk_cached_tokens = 0;
  std::optional<int> cache_miss_position;                // in the first output
  std::vector<int32_t> ids_before_miss, ids_after_miss;  // valid if there is a position
  DraftCounts drafts;
  bool has_prompt_logprobs = false;
  std::vector<int32_t> prompt_ids;  // in the first output, if logprobs were requested
  std::vector<float> prompt_logprobs, logprobs;
  std::vector<TokenLogprob> prompt_tops, tops;
};

// List of copies. Cleared entries keep their memory for later copies.
class OutputCopies {
 public:
  void add(size_t choice, const RequestOutput& output);
  void clear() { num_ = 0; }
  std::span<const OutputCopy> all() const { return std::span(copies_).first(num_); }

 private:
  std::vector<OutputCopy> copies_;
  size_t num_ = 0;
};

// Used on the I/O thread, except for submit() and reject(). Outputs with many logprobs and large replies are
// built on a worker thread, one build at a time; later outputs wait in the inbox until it is done.
class Generation : public ReadyHandler {
 public:
  // `on_end` is called once, after the last operation.
  Generation(const Endpoint& endpoint, AsyncEngine& engine, Executor& executor, ReadyQueue& ready_queue,
             std::shared_ptr<Exchange> exchange, ReplyHead head,
             std::function<void(const Generation&)> on_end);

  // Submits the prompts to the engine, whose outputs are passed to the I/O thread. Runs on a worker thread.
  // Throws ApiError and Error; prompts that were already submitted are then aborted. Throws ApiError 503 if
  // `max_waiting` completions wait before its first (0: no limit).
  void submit(GenerationJob job, int max_waiting);
  // Ends the request with this error, unless it has ended. May be called from any thread.
  void reject(std::exception_ptr error) noexcept;
  // Aborts unfinished completions after the client has disconnected. Later calls have no effect.
  void disconnect() noexcept;
  // Aborts unfinished completions; a connected client receives the last outputs. May be called from any
  // thread.
  void abort() noexcept;
  // Returns true after disconnect(). May be called from any thread.
  bool is_disconnected() const { return disconnected_; }
  void receive() override;

  const ReplyHead& head() const { return head_; }
  // Empty while a worker thread builds a reply.
  std::span<const Choice> choices() const {
    return build_ == Build::kRunning ? std::span<const Choice>() : std::span(choices_);
  }
  // Status of the response; 0 if none was sent.
  int status() const { return status_; }
  // Time to the first token in seconds; 0 if there was none.
  double seconds_to_first_token() const { return first_token_seconds_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  // Encodes a text that the engine would encode differently, and truncates the prompt if requested.
  void encode(PromptInput& prompt, const GenerationJob& job) const;
  // Aborts the submitted prompts of a job that was rejected during submission.
  void abort_submitted();
  // Receives an output on the engine's thread.
  void take(size_t choice, const RequestOutput& output) noexcept;
  void begin(std::vector<std::string> echoes);
  // Returns true if building the arrived outputs would occupy the I/O thread for long.
  bool is_large() const;
  void build_on_worker();
  // Adds the arrived outputs to the choices and writes `built_`. Runs on a worker thread or the I/O thread.
  void build();
  void on_output(const OutputCopy& output);
  void add_logprobs(Choice& choice, const OutputCopy& output);
  void stream(size_t index, std::string_view text, std::span<const AnswerDelta> deltas);
  // Sends what was built.
  void send_built();
  // Replies with this error.
  void fail(const ApiError& error);
  Headers id_headers() const;
  void end();

  const Endpoint& endpoint_;
  AsyncEngine& engine_;
  Executor& executor_;
  ReadyQueue& ready_queue_;
  ReplyHead head_;
  std::function<void(const Generation&)> on_end_;
  Clock::time_point start_ = Clock::now();

  GenerationJob job_;
  std::unique_ptr<ReplyWriter> writer_;
  std::vector<Choice> choices_;
  std::vector<bool> started_;  // indexed by choice: its first chunk was sent
  size_t num_left_ = 0;
  bool streaming_ = false, ended_ = false;
  int status_ = 0;
  double first_token_seconds_ = 0.0;
  OutputCopies arrived_;     // outputs that are being processed
  size_t num_logprobs_ = 0;  // entries of all choices

  // Result of build().
  struct Built {
    std::string events;  // of a stream
    std::string reply;   // complete reply
    bool ends = false;
    std::optional<ApiError> error;  // instead of them
  };
  Built built_;
  enum class Build { kNone, kRunning, kDone };
  std::atomic<Build> build_ = Build::kNone;  // on a worker thread

  // Data from other threads.
  struct Inbox {
    std::optional<GenerationJob> job;
    std::vector<std::string> echoes;
    OutputCopies outputs;
    std::exception_ptr error;
  };
  std::mutex inbox_mutex_;
  Inbox inbox_;

  std::mutex ids_mutex_;
  std::vector<RequestId> ids_;  // request ids of the engine
  bool aborted_ = false;
  std::atomic<bool> disconnected_ = false;
};

}  // namespace attend::serve
