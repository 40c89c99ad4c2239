// OutputProcessor: turns tokens of steps into outputs: text, stop strings, logprobs and finish reasons. It
// passes each completion's outputs to the sink, and its last output exactly once.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/output/request_output.h"
#include "attend/engine/request.h"
#include "attend/tensor/tensor.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {

class StepRunner;

// All calls are on the engine's thread.
class OutputProcessor {
 public:
  // `tokenizer`: null: outputs have no text. A request has at most `longest_request` tokens. `runner` has the
  // logprobs of the current step. `num_tokens` counts accepted tokens.
  OutputProcessor(const Tokenizer* tokenizer, std::vector<int32_t> eos_token_ids, int longest_request,
                  const StepRunner& runner, int64_t& num_tokens);
  ~OutputProcessor();

  // Registers the completions of a request: first their number, then each one. Their ids start with the
  // request's own and are consecutive.
  void begin(RequestId id, int num_completions);
  void begin_completion(const Request& request);
  // Removes the request's completions, including those that have begun.
  void forget(RequestId id);
  // Number of completions of the request; 0: all have ended, or there were none.
  int num_completions(RequestId id) const;

  // Sets RequestOutput::time of later outputs.
  void set_time(Clock::time_point time) { time_ = time; }

  // Processes the tokens of a request in a step, sampled from these rows of logits. `tokens`: of all rows of
  // the step. Sets Request::finish_reason if they end the request. Does not throw: a failure ends the
  // request.
  void accept(Request& request, View<const int32_t> tokens, std::span<const size_t> rows,
              const OutputSink& sink);
  // Outputs the vector of a pooling request and ends the request.
  void accept_vector(Request& request, std::span<const float> vector, const OutputSink& sink);
  void end(Request& request, FinishReason reason, std::string_view message, const OutputSink& sink,
           ErrorCode error_code = ErrorCode::kInternal);

  bool in_sink() const { return in_sink_; }
  // The first exception that a sink threw since the last call.
  void rethrow_sink_error();

 private:
  // Text of one completion while it is generated.
  struct TextState;
  // Completions that were submitted as one request.
  struct Group {
    int num_completions;
    int num_left;  // completions that have not ended
  };

  // Ends a request without new tokens after its prompt was computed.
  void end_prompt(Request& request, RequestOutput& output, const OutputSink& sink);
  std::string decode_prompt(const Request& request) const;
  // Adds the token's text and finish reason to the output.
  void accept_token(Request& request, int32_t token_id, RequestOutput& output);
  void add_text(RequestOutput& output, int32_t token_id);
  FinishReason finish_reason_after(const Request& request, int32_t token_id) const;
  LogprobsView make_logprobs(std::span<const size_t> rows);
  RequestOutput make_output(const Request& request) const;
  void emit(const RequestOutput& output, Request& request, const OutputSink& sink);

  const Tokenizer* const tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  const int longest_request_;
  const StepRunner& runner_;
  int64_t& num_tokens_;
  std::unordered_map<RequestId, TextState> texts_;
  std::unordered_map<RequestId, Group> groups_;
  Logprobs logprobs_;  // buffer for outputs of several tokens
  Clock::time_point time_;
  bool in_sink_ = false;
  std::exception_ptr sink_error_;
};

}  // namespace attend
