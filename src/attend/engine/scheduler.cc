#include "attend/engine/scheduler.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {

Scheduler::Scheduler(const BatchLimits& limits, ReqToTokenPool& rows, SlotAllocator& slots)
    : limits_(limits), rows_(rows), slots_(slots) {
  running_.reserve(static_cast<size_t>(limits.max_reqs));
  step_.requests.reserve(static_cast<size_t>(limits.max_reqs));
  new_slots_.resize(static_cast<size_t>(rows.max_context_len()));
}

void Scheduler::submit(std::unique_ptr<Request> request) {
  // Alone in the pool it must be able to store its prompt and take one more step.
  const int needed = request->num_prompt + 1;
  require(needed <= slots_.num_total_slots(), "prompt of ", request->num_prompt,
          " tokens: the KV pool holds ", slots_.num_total_slots(), " (raise --max-total-tokens)");
  require(needed <= limits_.max_kv_tokens, "prompt of ", request->num_prompt,
          " tokens: a step attends to at most ", limits_.max_kv_tokens, " (raise --max-kv-tokens)");
  waiting_.push_back(std::move(request));
}

const ScheduledStep& Scheduler::schedule() {
  step_.requests.clear();
  step_.num_tokens = 0;
  schedule_running();
  admit_waiting();
  const auto decodes = std::count_if(step_.requests.begin(), step_.requests.end(),
                                     [](const ScheduledRequest& part) { return part.request->decoding(); });
  if (step_.requests.empty())
    step_.mode = ForwardMode::kIdle;
  else if (decodes == static_cast<int64_t>(step_.requests.size()))
    step_.mode = ForwardMode::kDecode;
  else
    step_.mode = decodes == 0 ? ForwardMode::kExtend : ForwardMode::kMixed;
  return step_;
}

void Scheduler::schedule_running() {
  // What is scheduled is always a prefix of running_, so the one to preempt, the last, never takes part
  // already.
  for (size_t i = 0; i < running_.size(); ++i) {
    Request& request = *running_[i];
    // Every later request wants at least one token of the budget.
    const int reserved = static_cast<int>(running_.size() - i) - 1;
    const int budget = limits_.max_tokens - step_.num_tokens - reserved;
    const int num_new = std::min(request.num_to_compute(), budget);
    while (!grow(request, request.num_computed + num_new)) {
      const bool itself = i + 1 == running_.size();
      preempt_last();
      if (itself) return;
    }
    add(request, num_new);
  }
}

void Scheduler::admit_waiting() {
  while (!waiting_.empty() && num_running() < limits_.max_reqs && step_.num_tokens < limits_.max_tokens) {
    if (!admit(*waiting_.front())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    Request& request = *running_.back();
    add(request, std::min(request.num_to_compute(), limits_.max_tokens - step_.num_tokens));
  }
}

bool Scheduler::admit(Request& request) {
  // Leave a page, and a token of the limit, to every running request, else the next step would preempt what
  // this one admits.
  const int pages = ceil_div(request.num_tokens(), slots_.page_size());
  if (!running_.empty() && (slots_.num_free_pages() < pages + num_running() ||
                            held_tokens_ + request.num_tokens() + num_running() > limits_.max_kv_tokens))
    return false;
  const auto row = rows_.allocate();
  if (!row) return false;
  request.row = *row;
  if (!grow(request, request.num_tokens())) {
    release(request);
    return false;
  }
  request.times.admitted = Clock::now();
  return true;
}

bool Scheduler::grow(Request& request, int num_tokens) {
  if (num_tokens <= request.num_slots) return true;
  if (held_tokens_ + num_tokens - request.num_slots > limits_.max_kv_tokens) return false;
  const int32_t before = request.num_slots;
  const int32_t after = num_tokens;
  const TokenSlot last = before == 0 ? kNoSlot : rows_.row(request.row)[static_cast<size_t>(before) - 1];
  const View<TokenSlot> added(new_slots_.data(), static_cast<size_t>(after - before));
  const bool done = after == before + 1 && before > 0
                        ? slots_.alloc_decode({&after, 1}, {&last, 1}, added)
                        : slots_.alloc_extend({&before, 1}, {&after, 1}, {&last, 1}, added);
  if (!done) return false;
  rows_.write(request.row, before, added);
  request.num_slots = after;
  held_tokens_ += after - before;
  return true;
}

void Scheduler::release(Request& request) {
  slots_.free(rows_.row(request.row).first(static_cast<size_t>(request.num_slots)));
  rows_.free(request.row);
  held_tokens_ -= request.num_slots;
  request.row = kPaddingRow;
  request.num_slots = 0;
  request.num_computed = 0;
}

void Scheduler::preempt_last() {
  std::unique_ptr<Request> victim = std::move(running_.back());
  running_.pop_back();
  release(*victim);
  ++victim->num_preemptions;
  waiting_.push_front(std::move(victim));
}

void Scheduler::add(Request& request, int num_new) {
  step_.requests.push_back({&request, num_new});
  step_.num_tokens += num_new;
}

std::unique_ptr<Request> Scheduler::finish(RequestId id) {
  const auto found =
      std::find_if(running_.begin(), running_.end(), [&](const auto& request) { return request->id == id; });
  ensure(found != running_.end(), "request ", id, " finished but is not running");
  std::unique_ptr<Request> request = std::move(*found);
  running_.erase(found);
  release(*request);
  return request;
}

}  // namespace attend
