#include "attend/engine/step/step_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "attend/base/error.h"
#include "attend/engine/request.h"
#include "attend/kernels/attention/attention_batch.h"

namespace attend {

StepRunner::StepRunner(Model& model, AttentionBackend& attention, ReqToTokenPool& rows, SwaSlots* swa,
                       const CommonPrefix& common_prefix, const BatchLimits& limits, Device device,
                       StepTrace* trace, bool gives_prefixes)
    : model_(model),
      attention_(attention),
      rows_(rows),
      swa_(swa),
      trace_(trace),
      stream_{device},
      common_prefix_(common_prefix),
      inputs_(limits, rows, device, swa, gives_prefixes),
      sampler_(model.spec().vocab_size, device),
      prompt_scorer_(model.spec().vocab_size, device),
      logits_(Tensor::empty({limits.max_logit_rows(), model.spec().vocab_size}, DType::kF32, device)) {
  const bool on_gpu = device.type == DeviceType::kCuda;
  const int max_rows = limits.max_logit_rows();
  sampled_.reserve(static_cast<size_t>(max_rows));
  for (Flight& flight : flights_) {
    flight.sampling_requests.reserve(static_cast<size_t>(max_rows));
    flight.tokens =
        on_gpu ? cuda::empty_pinned({max_rows}, DType::kI32, device) : Tensor::empty({max_rows}, DType::kI32);
    if (on_gpu) flight.done.emplace(device);
  }
  if (!on_gpu) return;
  gpu_stream_.emplace(device);
  stream_ = gpu_stream_->get();
}

StepRunner::~StepRunner() {
  if (num_in_flight_ == 0 || !gpu_stream_.has_value()) return;
  try {
    cuda::synchronize(stream_);
  } catch (const Error&) {  // the device is lost, and computes nothing
  }
}

void StepRunner::pad_decodes(std::vector<int> sizes) { graphs_ = GraphRunner(std::move(sizes)); }

void StepRunner::record_graphs(const GraphProgress& progress) {
  ensure(gpu_stream_.has_value(), "graphs of a CPU's steps");
  const ScheduledStep padding{.requests = {}, .num_tokens = 0, .mode = ForwardMode::kDecode};
  int built = 0;
  const auto queue = [&](const GraphStep& step) {
    // The same inputs serve the run before and the recording, which must not hold their upload.
    if (built != step.size) inputs_.build(padding, stream_, step.size);
    built = step.size;
    inputs_.set_max_seqlen_kv(kernels::kMaxKeysOfShortRequest + (step.short_requests ? 0 : 1));
    queue_model();
  };
  const auto heeds_short_requests = [&](int size) { return attention_.heeds_short_requests(size); };
  graphs_.record(stream_, heeds_short_requests, queue, progress);
}

void StepRunner::launch(ScheduledStep& step) {
  ensure(num_in_flight_ == (step.ahead ? 1 : 0), "a step ", step.ahead ? "ahead" : "of known tokens",
         " with ", num_in_flight_, " in flight");
  // The end of the step before, for who waits for it while this one is computed.
  if (step.ahead && gpu_stream_.has_value()) this->flight(first_).done->record(stream_);
  const auto num_reqs = static_cast<int>(step.requests.size());
  // Graphs hold steps that share nothing. Nor do some of the requests of one that shares nothing.
  const SharedPrefix shared = step.ahead ? SharedPrefix() : common_prefix_.arrange(step);
  const bool padded = step.mode == ForwardMode::kDecode && shared.num_keys == 0;
  const int size = padded ? graphs_.padded_size(num_reqs) : 0;
  {
    const TraceSpan span(trace_, "inputs");
    inputs_.build(step, stream_, size, shared);
  }
  Flight& flight = this->flight(first_ + num_in_flight_);
  const View<const int32_t> sampling = inputs_.sampling_requests();
  flight.sampling_requests.assign(sampling.begin(), sampling.end());
  flight.start = Clock::now();
  {
    const TraceSpan span(trace_, "forward");
    // Not in a graph: they are other copies each time, and mostly none.
    if (step.ahead) queue_tokens(step, this->flight(first_).tokens);
    rows_.upload_shared(stream_);
    if (swa_ != nullptr) swa_->upload_moved(stream_);
    const bool short_requests = inputs_.batch().max_seqlen_kv <= kernels::kMaxKeysOfShortRequest;
    if (!graphs_.launch({size, short_requests}, stream_)) queue_model();
  }
  {
    const TraceSpan span(trace_, "sampling");
    queue_sampling(step, flight);
  }
  ++num_in_flight_;
}

View<const int32_t> StepRunner::wait(const ScheduledStep& step) {
  ensure(num_in_flight_ > 0, "a step is waited for, and none is in flight");
  Flight& flight = this->flight(first_);
  waited_for_ = &flight;
  first_ = (first_ + 1) % 2;
  --num_in_flight_;
  if (gpu_stream_.has_value()) {
    const TraceSpan span(trace_, "wait");
    if (num_in_flight_ > 0)
      flight.done->synchronize();
    else
      cuda::synchronize(stream_);
  }
  // Behind a step ahead there is nothing to check or to score.
  if (num_in_flight_ == 0) {
    check_masks(step, flight);
    score_prompts(step);
  }
  const auto now = Clock::now();
  device_seconds_ = std::chrono::duration<double>(now - std::max(flight.start, tokens_came_)).count();
  tokens_came_ = now;
  return flight.tokens.span<int32_t>().first(flight.sampling_requests.size());
}

void StepRunner::queue_tokens(const ScheduledStep& step, const Tensor& tokens_before) {
  const View<int32_t> ids = inputs_.token_ids();
  const size_t num_reqs = step.requests.size();
  for (size_t first = 0, end = 0; first < num_reqs; first = end) {
    const int from = step.requests[first].place_before;
    while (end < num_reqs && step.requests[end].place_before - from == static_cast<int>(end - first)) ++end;
    const auto count = static_cast<int64_t>(end - first);
    if (gpu_stream_.has_value())
      cuda::copy(tokens_before.view().slice(0, from, from + count),
                 TensorView::contiguous(ids.data() + first, DType::kI32, {count}, stream_.device), stream_);
    else
      // A request whose logits are all NaN has no token, and ends.
      std::ranges::transform(
          tokens_before.span<int32_t>().subspan(static_cast<size_t>(from), static_cast<size_t>(count)),
          ids.begin() + static_cast<std::ptrdiff_t>(first), [](int32_t id) { return std::max(id, 0); });
  }
}

void StepRunner::queue_model() {
  const ForwardBatch& batch = inputs_.batch();
  rows_.upload({.rows = raw(batch.request_rows),
                .cu_seqlen_q = batch.cu_seqlen_q,
                .positions = batch.positions,
                .slots = raw(batch.out_slots),
                .swa_slots = inputs_.swa_slots(),
                .slot_map = swa_ != nullptr ? swa_->slot_map().as<int32_t>() : nullptr},
               stream_);
  attention_.plan(batch, stream_);
  const TensorView logits = logits_.view().slice(0, 0, std::ssize(inputs_.rules()));
  model_.forward(inputs_.model_input(), batch, attention_, logits, stream_);
}

void StepRunner::queue_sampling(const ScheduledStep& step, Flight& flight) {
  const size_t num_rows = inputs_.rules().size();
  if (num_rows == 0) return;
  sampled_.clear();
  for (const int32_t i : inputs_.sampling_requests()) {
    Request* const request = step.requests[static_cast<size_t>(i)].request;
    const bool goes_on = !sampled_.empty() && sampled_.back().request == request;
    sampled_.push_back({.request = request, .num_ahead = goes_on ? sampled_.back().num_ahead + 1 : 0});
  }
  sampler_.sample(logits_.view().slice(0, 0, static_cast<int64_t>(num_rows)), inputs_.rules(), sampled_,
                  flight.tokens.span<int32_t>().first(num_rows), stream_);
}

void StepRunner::check_masks(const ScheduledStep& step, const Flight& flight) {
  const View<const int32_t> requests = flight.sampling_requests;
  for (size_t row = 0; row < requests.size(); ++row)
    if (!sampler_.allowed(row, flight.tokens.span<int32_t>()[row]))
      step.requests[static_cast<size_t>(requests[row])].request->failure =
          "its token mask, logit_bias and min_tokens leave no token to choose";
}

void StepRunner::score_prompts(const ScheduledStep& step) {
  int token_idx = 0;
  for (const ScheduledRequest& part : step.requests) {
    Request* const request = part.request;
    const int num_new = part.num_new;
    if (request == nullptr) continue;
    if (request->params.prompt_logprobs) {
      // Position p says how likely token p + 1 is. A preempted request knows its first ones.
      const auto known = static_cast<int>(request->prompt_logprobs.logprobs.size());
      const int first = std::max(request->num_computed, known);
      const int last = std::min(request->num_computed + num_new, request->num_prompt - 1);
      if (first < last) score_prompt(*request, first, last, token_idx + first - request->num_computed);
    }
    token_idx += num_new;
  }
}

void StepRunner::score_prompt(Request& request, int first, int last, int token_idx) {
  const auto max_tokens = static_cast<int>(inputs_.max_tokens());
  if (token_indices_.view().empty()) {
    std::vector<int32_t> indices(static_cast<size_t>(max_tokens));
    std::iota(indices.begin(), indices.end(), 0);
    token_indices_ = Tensor::from<int32_t>(indices, {max_tokens});
    if (gpu_stream_.has_value()) {
      const Tensor on_host = token_indices_;
      token_indices_ = cuda::empty({max_tokens}, DType::kI32, stream_.device);
      cuda::copy(on_host, token_indices_, stream_);
      cuda::synchronize(stream_);
    }
  }
  const int num_top = *request.params.prompt_logprobs;
  // A prompt's logits would take gigabytes: as many rows at a time as there are.
  const auto max_rows = static_cast<int>(logits_.shape(0));
  for (int begin = first; begin < last; begin += max_rows) {
    const int num_rows = std::min(max_rows, last - begin);
    const TensorView logits = logits_.view().slice(0, 0, num_rows);
    model_.head(token_indices_.span<int32_t>().subspan(static_cast<size_t>(token_idx + begin - first),
                                                       static_cast<size_t>(num_rows)),
                logits, stream_);
    const std::span<const int32_t> next(request.tokens.data() + begin + 1, static_cast<size_t>(num_rows));
    prompt_scorer_.score(logits, next, num_top, stream_);
    if (gpu_stream_.has_value()) cuda::synchronize(stream_);
    for (size_t row = 0; row < next.size(); ++row) {
      const LogprobsView scored = prompt_scorer_.logprobs(row);
      request.prompt_logprobs.add(scored.logprobs[0], scored.top(0));
    }
  }
}

}  // namespace attend
