// OutputProcessor: what the tokens of steps become. Text, stop strings and logprobs; whether a request ends,
// and why; and that each completion's outputs go to the sink, the last of them once.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/engine/output/request_output.h"
#include "attend/engine/request.h"
#include "attend/tensor/tensor.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {

class StepRunner;

// On the engine's thread.
class OutputProcessor {
 public:
  // `tokenizer`: null: no text. A request has `longest_request` tokens at most. `runner` has the logprobs of
  // the step in hand. `num_tokens` counts those that are accepted.
  OutputProcessor(const Tokenizer* tokenizer, std::vector<int32_t> eos_token_ids, int longest_request,
                  const StepRunner& runner, int64_t& num_tokens);
  ~OutputProcessor();

  // The completions of a request, which have the ids from its own on: first how many there are, then each.
  void begin(RequestId id, int num_completions);
  void begin_completion(const Request& request);
  // As if they had not begun, however many have.
  void forget(RequestId id);
  // 0: all have ended, or there were none.
  int num_completions(RequestId id) const;

  // Of the outputs from here on.
  void set_time(Clock::time_point time) { time_ = time; }

  // The tokens that a step gave a request, of rows of logits from `first_row` on. Request::finish_reason says
  // whether they ended it. Throws nothing: what fails for a request ends that request.
  void accept(Request& request, View<const int32_t> tokens, size_t first_row, const OutputSink& sink);
  // The vector of a request that pools, which ends it.
  void accept_vector(Request& request, std::span<const float> vector, const OutputSink& sink);
  void end(Request& request, FinishReason reason, std::string_view message, const OutputSink& sink);

  bool in_sink() const { return in_sink_; }
  // The first exception that a sink threw since the last call.
  void rethrow_sink_error();

 private:
  // Text of one completion while it is generated.
  struct TextState;
  // What was asked for as one request.
  struct Group {
    int num_completions;
    int num_left;  // that have not ended
  };

  // What the token adds goes to the output.
  void accept_token(Request& request, int32_t token_id, RequestOutput& output);
  void add_text(RequestOutput& output, int32_t token_id);
  FinishReason finish_reason_after(const Request& request, int32_t token_id) const;
  LogprobsView make_logprobs(size_t first_row, size_t num_rows);
  RequestOutput make_output(const Request& request) const;
  void emit(const RequestOutput& output, Request& request, const OutputSink& sink);

  const Tokenizer* const tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  const int longest_request_;
  const StepRunner& runner_;
  int64_t& num_tokens_;
  std::unordered_map<RequestId, TextState> texts_;
  std::unordered_map<RequestId, Group> groups_;
  Logprobs logprobs_;  // of several tokens of an output
  Clock::time_point time_;
  bool in_sink_ = false;
  std::exception_ptr sink_error_;
};

}  // namespace attend
