// RequestStream: outputs of one request, stored by the engine's thread until Python fetches them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attend/engine/output/request_output.h"

namespace attend::python {

// Log probabilities of a LogprobsView.
struct StoredLogprobs {
  std::vector<float> logprobs;
  std::vector<TokenLogprob> tops;
  int num_top = 0;

  void add(const LogprobsView& view);
};

// New output of one completion since the last fetch.
struct NewOutput {
  int index = 0;
  bool any = false;
  std::vector<int32_t> token_ids;
  std::string text;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;
  std::string matched_stop, message;
  StoredLogprobs logprobs;
  // Set in the first output of the request.
  std::vector<int32_t> prompt_token_ids;
  StoredLogprobs prompt_logprobs;
  bool has_prompt_logprobs = false;
  int num_cached_tokens = 0;
};

// add() is called by the engine's thread, take() and fd() by callers; no function needs the GIL.
class RequestStream {
 public:
  explicit RequestStream(int num_completions);
  ~RequestStream();
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;

  void add(const RequestOutput& output);

  // Waits until there is new output, or with `finished` until all completions have ended, or until the
  // timeout. Returns the new outputs if the condition was met.
  std::vector<NewOutput> take(std::chrono::milliseconds timeout, bool finished);
  bool ended() const;
  // File descriptor that is readable while there is new output, for event loops. Created at the first call.
  int fd();

 private:
  bool has_news() const;
  void set_readable();

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<NewOutput> outputs_;  // indexed by completion
  int num_left_;
  bool prompt_told_ = false;
  int fd_ = -1;
};

}  // namespace attend::python
