#include "attend/engine/step/step_runner.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/engine/request.h"

namespace attend {

StepRunner::StepRunner(Executor& executor, const CommonPrefix& common_prefix, StepTrace* trace,
                       bool hidden_states)
    : executor_(executor),
      trace_(trace),
      common_prefix_(common_prefix),
      batch_(executor.limits(), hidden_states),
      sampler_(executor.spec().vocab_size, executor.device()),
      prompt_scorer_(executor.spec().vocab_size, executor.device()) {
  const int max_rows = executor.limits().max_logit_rows();
  const Device device = executor.device();
  sampled_.reserve(static_cast<size_t>(max_rows));
  for (Flight& flight : flights_) {
    flight.sampling_requests.reserve(static_cast<size_t>(max_rows));
    flight.tokens = executor.on_gpu() ? cuda::empty_pinned({max_rows}, DType::kI32, device)
                                      : Tensor::empty({max_rows}, DType::kI32);
    if (executor.on_gpu()) flight.done.emplace(device);
  }
}

StepRunner::~StepRunner() {
  if (num_in_flight_ == 0 || !executor_.on_gpu()) return;
  try {
    cuda::synchronize(executor_.stream());
  } catch (const Error&) {  // the device failed, so nothing is running
  }
}

void StepRunner::launch(ScheduledStep& step) {
  ensure(num_in_flight_ == (step.ahead ? 1 : 0), "a step ", step.ahead ? "ahead" : "with known tokens",
         ", but ", num_in_flight_, " steps in flight");
  // Marks the end of the previous step, so that wait() can return while this one is computed.
  if (step.ahead && executor_.on_gpu()) this->flight(first_).done->record(executor_.stream());
  // A step ahead has a subset of the previous step's requests, which share no keys.
  const SharedPrefix shared = step.ahead ? SharedPrefix() : common_prefix_.arrange(step);
  output_ = executor_.launch(batch_.build(step, shared, this->flight(first_).tokens));
  Flight& flight = this->flight(first_ + num_in_flight_);
  const View<const int32_t> sampling = batch_.sampling_requests();
  flight.sampling_requests.assign(sampling.begin(), sampling.end());
  flight.start = output_.launched;
  {
    const TraceSpan span(trace_, "sampling");
    queue_sampling(step, flight);
  }
  ++num_in_flight_;
}

View<const int32_t> StepRunner::wait(const ScheduledStep& step) {
  ensure(num_in_flight_ > 0, "wait() without a step in flight");
  Flight& flight = this->flight(first_);
  last_completed_ = &flight;
  first_ = (first_ + 1) % 2;
  --num_in_flight_;
  if (executor_.on_gpu()) {
    const TraceSpan span(trace_, "wait");
    if (num_in_flight_ > 0)
      flight.done->synchronize();
    else
      cuda::synchronize(executor_.stream());
    executor_.check_completed();
  }
  // A step that is followed by a step ahead has no masks to check and no prompts to score.
  if (num_in_flight_ == 0) {
    check_masks(step, flight);
    score_prompts(step);
  }
  const auto now = Clock::now();
  const auto begin = std::max(flight.start, tokens_ready_time_);
  device_seconds_ = std::chrono::duration<double>(now - begin).count();
  if (trace_ && trace_->recording() && executor_.on_gpu())
    trace_->add("step on the GPU", begin, now, StepTrace::Row::kDevice);
  tokens_ready_time_ = now;
  return flight.tokens.span<int32_t>().first(flight.sampling_requests.size());
}

void StepRunner::queue_sampling(const ScheduledStep& step, Flight& flight) {
  const size_t num_rows = output_.rules.size();
  if (num_rows == 0) return;
  sampled_.clear();
  for (const int32_t i : batch_.sampling_requests()) {
    Request* const request = step.requests[static_cast<size_t>(i)].request;
    const bool is_continued = !sampled_.empty() && sampled_.back().request == request;
    sampled_.push_back({.request = request, .num_ahead = is_continued ? sampled_.back().num_ahead + 1 : 0});
  }
  sampler_.sample(output_.logits, output_.rules, sampled_, flight.tokens.span<int32_t>().first(num_rows),
                  executor_.stream());
}

void StepRunner::check_masks(const ScheduledStep& step, const Flight& flight) {
  const View<const int32_t> requests = flight.sampling_requests;
  for (size_t row = 0; row < requests.size(); ++row)
    if ((row == 0 || requests[row] != requests[row - 1]) &&
        !allows(row, flight.tokens.span<int32_t>()[row])) {
      Request& request = *step.requests[static_cast<size_t>(requests[row])].request;
      request.failure = "its token mask, logit_bias and min_tokens leave no token to choose";
      request.failure_code = ErrorCode::kInvalidArgument;
    }
}

void StepRunner::score_prompts(const ScheduledStep& step) {
  int token_idx = 0;
  for (const ScheduledRequest& part : step.requests) {
    Request* const request = part.request;
    const int num_new = part.num_new;
    if (request == nullptr) continue;
    if (request->params.prompt_logprobs) {
      // Position p predicts token p + 1. A preempted request already has the logprobs of its first tokens.
      const auto known = static_cast<int>(request->prompt_logprobs.logprobs.size());
      const int first = std::max(request->num_computed, known);
      const int last = std::min(request->num_computed + num_new, request->num_prompt - 1);
      if (first < last) score_prompt(*request, first, last, token_idx + first - request->num_computed);
    }
    token_idx += num_new;
  }
}

void StepRunner::score_prompt(Request& request, int first, int last, int token_idx) {
  const int num_top = *request.params.prompt_logprobs;
  // All logits of a prompt would need gigabytes, so at most max_logit_rows() rows are computed at a time.
  const int max_rows = executor_.limits().max_logit_rows();
  for (int begin = first; begin < last; begin += max_rows) {
    const int num_rows = std::min(max_rows, last - begin);
    const TensorView logits = executor_.compute_logits(token_idx + begin - first, num_rows);
    const std::span<const int32_t> next(request.tokens.data() + begin + 1, static_cast<size_t>(num_rows));
    prompt_scorer_.score(logits, next, num_top, executor_.stream());
    if (executor_.on_gpu()) cuda::synchronize(executor_.stream());
    for (size_t row = 0; row < next.size(); ++row) {
      const LogprobsView scored = prompt_scorer_.logprobs(row);
      request.prompt_logprobs.add(scored.logprobs[0], scored.top(0));
    }
  }
}

}  // namespace attend
