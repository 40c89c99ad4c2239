#include "attend/engine/output/output_processor.h"

#include <algorithm>
#include <new>
#include <utility>

#include "attend/engine/output/stop_matcher.h"
#include "attend/engine/step/logits_processor.h"
#include "attend/engine/step/step_runner.h"

namespace attend {
namespace {

constexpr std::string_view kNoNumbers =
    "the model's logits are NaN: expected weights and a --kv-cache-dtype whose range covers the activations";

LogprobsView make_prompt_logprobs(const Request& request) {
  return {.logprobs = request.prompt_logprobs.logprobs,
          .tops = request.prompt_logprobs.tops,
          .num_top = *request.params.prompt_logprobs};
}

}  // namespace

struct OutputProcessor::TextState {
  StreamDecoder decoder;
  StopMatcher stops;
  std::string text;  // new text of the current output

  // Adds the text that was held back.
  void flush() {
    text += stops.push(decoder.flush());
    if (stops.matched() == nullptr) text += stops.flush();
  }
};

OutputProcessor::OutputProcessor(const Tokenizer* tokenizer, std::vector<int32_t> eos_token_ids,
                                 int longest_request, const StepRunner& runner, int64_t& num_tokens)
    : tokenizer_(tokenizer),
      eos_token_ids_(std::move(eos_token_ids)),
      longest_request_(longest_request),
      runner_(runner),
      num_tokens_(num_tokens) {}

OutputProcessor::~OutputProcessor() = default;

void OutputProcessor::begin(RequestId id, int num_completions) {
  groups_.emplace(id, Group{.num_completions = num_completions, .num_left = num_completions});
}

void OutputProcessor::begin_completion(const Request& request) {
  if (tokenizer_ == nullptr || request.pools) return;
  const SamplingParams& params = request.params;
  StreamDecoder decoder(*tokenizer_, params.skip_special_tokens);
  decoder.set_prompt(std::span(request.tokens).first(static_cast<size_t>(request.num_prompt)),
                     params.echo || params.follows_echo);
  texts_.try_emplace(request.id,
                     TextState{std::move(decoder), StopMatcher(params.stop, params.include_stop), {}});
}

void OutputProcessor::forget(RequestId id) {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return;
  for (int i = 0; i < group->second.num_completions; ++i) texts_.erase(id + i);
  groups_.erase(group);
}

int OutputProcessor::num_completions(RequestId id) const {
  const auto group = groups_.find(id);
  return group == groups_.end() ? 0 : group->second.num_completions;
}

void OutputProcessor::accept(Request& request, View<const int32_t> tokens, std::span<const size_t> rows,
                             const OutputSink& sink) {
  if (!request.failure.empty())
    return end(request, FinishReason::kError, request.failure, sink, request.failure_code);
  const auto has_no_token = [&](size_t row) { return tokens[row] == kernels::kNoToken; };
  const auto num_tokens = static_cast<size_t>(std::ranges::find_if(rows, has_no_token) - rows.begin());
  try {
    RequestOutput output = make_output(request);
    if (request.params.max_new_tokens == 0) return end_prompt(request, output, sink);
    const auto first = request.tokens.size();
    if (const auto found = texts_.find(request.id); found != texts_.end()) found->second.text.clear();
    for (size_t i = 0; i < num_tokens && !output.finished(); ++i)
      accept_token(request, tokens[rows[i]], output);
    output.token_ids = std::span(request.tokens).subspan(first);
    output.logprobs = make_logprobs(rows.first(output.token_ids.size()));
    if (!output.token_ids.empty()) emit(output, request, sink);
    if (num_tokens < rows.size() && request.finish_reason == FinishReason::kNone)
      end(request, FinishReason::kError, kNoNumbers, sink);
  } catch (const Error& error) {  // of a mask
    end(request, FinishReason::kError, error.what(), sink, error.code());
  } catch (const std::exception& error) {
    end(request, FinishReason::kError, error.what(), sink);
  }
}

// The sampled token is dropped.
void OutputProcessor::end_prompt(Request& request, RequestOutput& output, const OutputSink& sink) {
  output.finish_reason = FinishReason::kLength;
  output.has_prompt_logprobs = request.params.prompt_logprobs.has_value();
  if (output.has_prompt_logprobs) output.prompt_logprobs = make_prompt_logprobs(request);
  const auto found = texts_.find(request.id);
  if (found != texts_.end() && request.params.echo) {
    found->second.text = decode_prompt(request);
    output.text = found->second.text;
  }
  emit(output, request, sink);
}

void OutputProcessor::accept_vector(Request& request, std::span<const float> vector, const OutputSink& sink) {
  RequestOutput output = make_output(request);
  output.vector = vector;
  output.finish_reason = FinishReason::kStop;
  emit(output, request, sink);
}

void OutputProcessor::accept_token(Request& request, int32_t token_id, RequestOutput& output) {
  request.append(token_id);
  ++num_tokens_;
  if (request.logits_processor) request.logits_processor->accept(token_id);
  output.finish_reason = finish_reason_after(request, token_id);
  if (output.finish_reason == FinishReason::kStop) output.matched_token = token_id;
  if (request.num_output() == 1 && request.params.prompt_logprobs) {
    output.has_prompt_logprobs = true;
    output.prompt_logprobs = make_prompt_logprobs(request);
  }
  if (request.mask && !output.finished()) request.mask->accept(token_id);
  add_text(output, token_id);
}

LogprobsView OutputProcessor::make_logprobs(std::span<const size_t> rows) {
  if (rows.empty()) return {};
  const LogprobsView first = runner_.logprobs(rows.front());
  if (rows.size() == 1 || first.empty()) return first;
  logprobs_.logprobs.clear();
  logprobs_.tops.clear();
  for (const size_t row : rows) {
    const LogprobsView one = runner_.logprobs(row);
    logprobs_.add(one.logprobs[0], one.top(0));
  }
  return {.logprobs = logprobs_.logprobs, .tops = logprobs_.tops, .num_top = first.num_top};
}

void OutputProcessor::add_text(RequestOutput& output, int32_t token_id) {
  const auto found = texts_.find(output.request.id);
  if (found == texts_.end()) return;
  auto& [decoder, stops, text] = found->second;
  const SamplingParams& params = output.request.params;
  const int num_output = output.request.num_output();
  if (params.echo && num_output == 1) text += decode_prompt(output.request);
  // A token that stops the request is not part of the text.
  if (!output.matched_token) {
    const std::string added = decoder.push(token_id);
    text += num_output < params.min_tokens ? added : stops.push(added);
  }
  if (output.finished()) found->second.flush();
  if (const std::string* stop = stops.matched()) {
    output.finish_reason = FinishReason::kStop;
    output.matched_stop = *stop;
  }
  output.text = text;
}

std::string OutputProcessor::decode_prompt(const Request& request) const {
  return tokenizer_->decode_prefix(std::span(request.tokens).first(static_cast<size_t>(request.num_prompt)),
                                   request.params.skip_special_tokens);
}

void OutputProcessor::end(Request& request, FinishReason reason, std::string_view message,
                          const OutputSink& sink, ErrorCode error_code) {
  RequestOutput output = make_output(request);
  output.finish_reason = reason;
  output.message = message;
  output.error_code = error_code;
  if (const auto found = texts_.find(request.id); found != texts_.end()) {
    TextState& state = found->second;
    state.text.clear();
    try {
      state.flush();
      output.text = state.text;
    } catch (const std::bad_alloc&) {  // the output omits the remaining text
    }
  }
  emit(output, request, sink);
}

RequestOutput OutputProcessor::make_output(const Request& request) const {
  return {.id = request.group,
          .index = request.index,
          .token_ids = {},
          .text = {},
          .finish_reason = FinishReason::kNone,
          .matched_token = {},
          .matched_stop = {},
          .message = {},
          .logprobs = {},
          .prompt_logprobs = {},
          .time = time_,
          .request = request};
}

void OutputProcessor::emit(const RequestOutput& output, Request& request, const OutputSink& sink) {
  if (request.num_output() <= std::max<int64_t>(1, std::ssize(output.token_ids)))
    request.times.first_token = time_;
  request.finish_reason = output.finish_reason;
  if (output.finished()) request.times.finished = time_;
  in_sink_ = true;
  try {
    sink(output);
  } catch (...) {
    if (!sink_error_) sink_error_ = std::current_exception();
    if (!output.finished()) request.finish_reason = FinishReason::kAbort;
  }
  in_sink_ = false;
  if (request.finish_reason == FinishReason::kNone) return;
  texts_.erase(request.id);
  if (const auto group = groups_.find(request.group); --group->second.num_left == 0) groups_.erase(group);
}

void OutputProcessor::rethrow_sink_error() {
  if (sink_error_) std::rethrow_exception(std::exchange(sink_error_, nullptr));
}

FinishReason OutputProcessor::finish_reason_after(const Request& request, int32_t token_id) const {
  const auto contains = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token_id) != ids.end();
  };
  if (!request.params.ignore_eos && contains(eos_token_ids_)) return FinishReason::kStop;
  if (contains(request.params.stop_token_ids)) return FinishReason::kStop;
  if (request.num_output() >= request.params.max_new_tokens || request.num_tokens() >= longest_request_)
    return FinishReason::kLength;
  return FinishReason::kNone;
}

}  // namespace attend
