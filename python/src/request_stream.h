// What the engine's thread says of one request, kept until Python asks for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attend/engine/output/request_output.h"

namespace attend::python {

// Logarithms of probabilities as LogprobsView has them.
struct KeptLogprobs {
  std::vector<float> logprobs;
  std::vector<TokenLogprob> tops;
  int num_top = 0;

  void add(const LogprobsView& view);
};

// Of one completion, what came since it was last asked for.
struct NewOutput {
  int index = 0;
  bool any = false;
  std::vector<int32_t> token_ids;
  std::string text;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;
  std::string matched_stop, message;
  KeptLogprobs logprobs;
  // With the first output of the request.
  std::vector<int32_t> prompt_token_ids;
  KeptLogprobs prompt_logprobs;
  int num_cached_tokens = 0;
};

// add() is the engine's thread's, take() and fd() the callers'; no function needs Python's lock.
class RequestStream {
 public:
  explicit RequestStream(int num_completions);
  ~RequestStream();
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;

  void add(const RequestOutput& output);

  // Waits until something is new, or `finished`: until all completions have ended; or for so long. Returns
  // what is new, if it is what was waited for.
  std::vector<NewOutput> take(std::chrono::milliseconds timeout, bool finished);
  bool ended() const;
  // Readable while something is new: for event loops. Made when first asked for.
  int fd();

 private:
  bool has_news() const;
  void set_readable();

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<NewOutput> outputs_;  // by completion
  int num_left_;
  bool prompt_told_ = false;
  int fd_ = -1;
};

}  // namespace attend::python
