#include "attend/engine/schedule/scheduler.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/math.h"

namespace attend {
namespace {

#ifdef NDEBUG
constexpr bool kCheckEveryStep = false;
#else
constexpr bool kCheckEveryStep = true;
#endif

}  // namespace

Scheduler::Scheduler(const BatchLimits& limits, RequestMemory& memory, const ScheduleOptions& options,
                     const DraftRules& drafts)
    : limits_(limits),
      memory_(memory),
      options_(options),
      drafts_(drafts),
      waiting_(options.policy),
      ratio_(options.conservativeness) {
  running_.reserve(static_cast<size_t>(limits.max_reqs));
  for (ScheduledStep& step : steps_) step.requests.reserve(static_cast<size_t>(limits.max_reqs));
}

void Scheduler::check(const Request& request) const {
  // Without other requests in the pool, the request must fit with its prompt and one decode step.
  const int needed = request.num_prompt + (request.pools ? 0 : 1);
  require(needed <= memory_.num_total_slots(), "prompt of ", request.num_prompt,
          " tokens: the KV pool holds ", memory_.num_total_slots(), " (raise --max-total-tokens)");
  require(needed <= memory_.max_kv_tokens(), "prompt of ", request.num_prompt,
          " tokens: a step attends to at most ", memory_.max_kv_tokens(), " (raise --max-kv-tokens)");
}

void Scheduler::submit(std::unique_ptr<Request> request) {
  check(*request);
  request->arrival = num_arrived_++;
  if (request->deadline) deadlines_.emplace(*request->deadline, request->id);
  const int num_completions = request->params.n;
  const bool is_last = request->index + 1 == num_completions;
  waiting_.push(std::move(request));
  if (!is_last || options_.max_queued_requests == 0) return;
  // Number of completions that waited before those of this request.
  if (waiting_.size() - num_completions < options_.max_queued_requests) return;
  const Request& last = *waiting_.last();
  const RequestId first = last.id - last.index, end = first + last.params.n;
  for (RequestId id = first; id < end; ++id) drop(id, "the request queue is full");
}

// If memory runs out, the request is still queued or running.
void Scheduler::drop(RequestId id, std::string_view reason) {
  dropped_.emplace_back();
  if (std::unique_ptr<Request> request = abort(id))
    dropped_.back() = {std::move(request), reason};
  else
    dropped_.pop_back();
}

std::vector<DroppedRequest> Scheduler::drain_dropped(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now)
    drop(deadlines_.begin()->second, "the deadline has passed");
  return std::exchange(dropped_, {});
}

ScheduledStep& Scheduler::schedule() {
  try {
    memory_.check_counts();
    if constexpr (kCheckEveryStep) check_memory();
    if (inconsistency_.empty()) schedule_step();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInternal) throw;
    inconsistency_ = error.what();
  } catch (const std::bad_alloc& error) {
    inconsistency_ = error.what();
  }
  if (!inconsistency_.empty()) {
    recover(inconsistency_);
    schedule_step();
  }
  return *step_;
}

void Scheduler::schedule_step() {
  step_->requests.clear();
  step_->num_tokens = step_->num_decodes = step_->max_draft_tokens = 0;
  step_->ahead = step_->advanced = false;
  first_prompt_ = nullptr;
  const int64_t preemptions_before = num_preemptions_;
  memory_.begin_step();
  if (running_.empty()) ratio_.reset();
  wait_for_masks();
  wait_for_copies();
  recompute_longer_requests();
  schedule_decodes();
  schedule_prompts();
  admit_waiting();
  if (step_->requests.empty() &&
      std::ranges::none_of(running_, [](const auto& request) { return request->is_paused(); }) &&
      !waits_for_image())
    preempt_for_prompt();
  reserve_draft_slots();
  step_->prefix_ready = !memory_.reads_pending_keys();
  step_->mode = step_->find_mode();
  const bool decodes = step_->mode == ForwardMode::kDecode || step_->mode == ForwardMode::kMixed;
  if (decodes && num_preemptions_ == preemptions_before) ratio_.after_decode();
}

// Masks that are usually ready in time are waited for, so that requests with a grammar keep pace. A mask that
// takes longer is late: later steps do not wait for it.
void Scheduler::wait_for_masks() {
  constexpr std::chrono::microseconds kWait{3000}, kWaitPerMask{500};
  int64_t num_pending = 0;
  for (const auto& request : running_) {
    if (request->mask_ready())
      request->waits_for_mask = false;
    else if (!request->waits_for_mask)
      ++num_pending;
  }
  if (num_pending == 0) return;
  const auto end = Clock::now() + kWait + kWaitPerMask * num_pending;
  for (const auto& request : running_) {
    if (!request->mask || request->waits_for_mask) continue;
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now());
    request->waits_for_mask = !request->mask->wait_for(std::max(left, std::chrono::microseconds(0)));
  }
}

// A request also waits if its computed pages were replaced by cached ones.
void Scheduler::wait_for_copies() {
  for (const auto& request : running_) request->waits_for_copy = !memory_.is_loaded(*request);
}

bool Scheduler::wait(std::chrono::microseconds timeout) const {
  const auto waits_for_copy = [](const auto& request) { return request->waits_for_copy; };
  if (std::ranges::any_of(running_, waits_for_copy)) {
    memory_.wait_for_copies(timeout);
    return true;
  }
  const auto is_late = [](const auto& request) { return request->waits_for_mask; };
  if (const auto found = std::ranges::find_if(running_, is_late); found != running_.end()) {
    (*found)->mask->wait_for(timeout);
    return true;
  }
  if (waiting_.empty()) return false;
  const Request& next = *waiting_.next();
  if (!next.waits_for_mask) return memory_.wait_for_prefix(next, timeout);
  next.mask->wait_for(timeout);
  return true;
}

bool Scheduler::waits_for_image() const {
  return std::ranges::any_of(running_, [](const auto& request) { return request->waits_for_image(); });
}

bool Scheduler::can_overlap(const ScheduledStep& before) const {
  if (!inconsistency_.empty() || before.mode != ForwardMode::kDecode) return false;
  int num_copying = 0;
  for (const auto& request : running_) {
    if (!request->waits_for_copy) continue;
    if (memory_.is_loaded(*request)) return false;
    ++num_copying;
  }
  return before.num_live() + num_copying == num_running();
}

ScheduledStep* Scheduler::schedule_overlapped(int64_t longest) {
  const ScheduledStep& before = *step_;
  if (!can_overlap(before)) return nullptr;
  ScheduledStep& step = steps_[step_ == &steps_[0] ? 1 : 0];
  step.requests.clear();
  int num_runs = 0, run_end = -1;
  for (int idx = 0; idx < std::ssize(before.requests); ++idx) {
    Request* const request = before.requests[static_cast<size_t>(idx)].request;
    if (request == nullptr || request->num_output() + 1 >= request->params.max_new_tokens ||
        request->num_tokens() + 1 >= longest)
      continue;
    num_runs += idx == run_end ? 0 : 1;
    run_end = idx + 1;
    step.requests.push_back({.request = request, .num_new = 1, .previous_index = idx});
  }
  const auto num_reqs = static_cast<int>(step.requests.size());
  if (num_reqs == 0 || num_runs > kMaxPreparedRuns) return nullptr;
  if (!waiting_.empty() && num_reqs < limits_.max_reqs) return nullptr;
  if (drafts_.draft_length(num_reqs) > 0) return nullptr;
  try {
    memory_.check_counts();
    // The pending token becomes the request's last one.
    for (const ScheduledRequest& part : step.requests)
      if (!memory_.grow(*part.request, part.request->num_tokens() + 1)) return nullptr;
    if constexpr (kCheckEveryStep) check_memory();
  } catch (const std::exception& error) {
    inconsistency_ = error.what();
    return nullptr;
  }
  advance();
  step.num_tokens = step.num_decodes = num_reqs;
  step.max_draft_tokens = 0;
  step.mode = ForwardMode::kDecode;
  step.prefix_ready = true;
  step.ahead = true;
  step.advanced = false;
  step_ = &step;
  ratio_.after_decode();
  return step_;
}

void Scheduler::advance() {
  if (std::exchange(step_->advanced, true)) return;
  for (const ScheduledRequest& part : step_->requests) {
    Request* const request = part.request;
    if (request == nullptr) continue;
    const bool decoded = step_->ahead || request->decoding();
    request->num_computed += part.num_new - part.num_rejected();
    if (!inconsistency_.empty()) continue;
    try {
      memory_.advance(*request);
      if (part.num_rejected() > 0) memory_.rewind(*request, request->num_computed);
      // The output is cached only when the request ends: a tree node for each of its pages would make a long
      // path.
      if (!decoded) memory_.checkpoint(*request);
    } catch (const std::exception& error) {
      inconsistency_ = error.what();
    }
  }
}

void Scheduler::fail_step() { memory_.drop_unlocked(); }

void Scheduler::recover(std::string_view reason) {
  ++num_recoveries_;
  log_warning("KV pool: failed conservation check (", reason, "): restarting ", running_.size(),
              " requests and dropping the prefix cache");
  inconsistency_.clear();
  memory_.reset();
  for (; !running_.empty(); running_.pop_back()) waiting_.push(std::move(running_.back()));
  waiting_.for_each([](Request& request) {
    request.row = kPaddingRow;
    request.num_ever_computed = std::max(request.num_ever_computed, request.num_computed);
    request.num_slots = request.num_computed = request.num_pending = 0;
  });
}

void Scheduler::check_memory() const {
  std::vector<Request*> running;
  for (const auto& request : running_) running.push_back(request.get());
  memory_.check(running);
}

void Scheduler::schedule_decodes() {
  const int64_t num_before = num_preemptions_;
  for (size_t i = 0; i < running_.size();) {
    Request& request = *running_[i];
    if (!request.decoding() || request.is_paused() || memory_.grow(request, request.num_tokens())) {
      ++i;
      continue;
    }
    const size_t victim = choose_victim();
    preempt(victim);
    i -= victim < i;
  }
  int num_decodes = 0, num_known = 0;
  for (const auto& request : running_) {
    if (!request->decoding() || request->is_paused()) continue;
    ++num_decodes;
    num_known += request->num_to_compute();
  }
  const int room = draft_room(num_decodes, num_known);
  const int longest = std::min(room, drafts_.draft_length(num_decodes));
  step_->num_decodes = num_decodes;
  step_->trees = drafts_.tree_slots > 0 && !may_have_prompts(num_decodes);
  for (const auto& request : running_) {
    if (!request->decoding() || request->is_paused()) continue;
    request->draft.clear();
    const int depth = max_draft(*request, longest);
    const bool has_tree = step_->trees && depth > 0 && drafts_.tree_slots <= room &&
                          request->num_tokens() + drafts_.tree_slots <= memory_.longest_request();
    const int num_draft_slots = has_tree ? drafts_.tree_slots : depth;
    step_->requests.push_back({.request = request.get(),
                               .num_new = request->num_to_compute(),
                               .num_draft_slots = num_draft_slots,
                               .draft_depth = depth});
    step_->num_tokens += request->num_to_compute();
    step_->max_draft_tokens = std::min(room, step_->max_draft_tokens + num_draft_slots);
  }
  if (num_preemptions_ == num_before) return;
  int64_t num_output = 0, max_new_tokens = 0;
  for (const auto& request : running_) {
    num_output += request->num_output();
    max_new_tokens += request->params.max_new_tokens;
  }
  ratio_.after_preemption(num_output, max_new_tokens, num_running());
}

void Scheduler::schedule_prompts() {
  for (const auto& request : running_) {
    if (request->decoding() || request->is_paused()) continue;
    // Other requests may have computed the same tokens in the meantime.
    memory_.match_more(*request);
    schedule_chunk(*request);
  }
}

std::span<const ImageRun> Scheduler::whole_items(const Request& request) {
  if (!request.images || !request.images->bidirectional) return {};
  return request.images->runs;
}

bool Scheduler::schedule_chunk(Request& request) {
  if (request.waits_for_copy) return false;
  const auto found = std::ranges::find(step_->requests, &request, &ScheduledRequest::request);
  const int num_before = found == step_->requests.end() ? 0 : found->num_new;
  const int end = chunk_end({.begin = request.num_computed,
                             .prompt_end = request.num_tokens(),
                             .room = num_before + room(),
                             .grid = memory_.chunk_grid(),
                             .is_whole = request.pools,
                             .is_first = first_prompt_ == nullptr || first_prompt_ == &request,
                             .ready_end = request.encoded_end(),
                             .items = whole_items(request)});
  const int num_new = end - request.num_computed;
  if (num_new <= num_before || !memory_.grow(request, end)) return num_before > 0;
  if (!request.decoding()) memory_.share_before_compute(request, end);
  if (num_before == 0) step_->requests.push_back({.request = &request, .num_new = 0});
  (num_before == 0 ? step_->requests.back() : *found).num_new = num_new;
  step_->num_tokens += num_new - num_before;
  if (first_prompt_ == nullptr) first_prompt_ = &request;
  return true;
}

void Scheduler::recompute_longer_requests() {
  for (size_t i = running_.size(); i-- > 0;) {
    Request& request = *running_[i];
    if (request.max_rope_len == 0 || request.num_tokens() <= request.max_rope_len) continue;
    preempt(i);
    request.rope_len = request.num_tokens();
    request.max_rope_len = 0;
    request.cache_salt = request.long_salt;
  }
}

void Scheduler::preempt_for_prompt() {
  while (running_.size() > 1) {
    preempt(choose_victim());
    for (const auto& request : running_)
      if (schedule_chunk(*request)) return;
  }
}

void Scheduler::admit_waiting() {
  const auto has_room = [&] { return !waiting_.empty() && num_running() < limits_.max_reqs && room() > 0; };
  if (!has_room()) return;
  AdmissionBudget slots(int64_t{memory_.num_available_pages()} * memory_.page_size(), memory_.page_size());
  AdmissionBudget keys(memory_.max_kv_tokens(), 1);
  for (const auto& request : running_) {
    const double answer = num_planned(*request) * ratio_.value();
    slots.reserve(std::max(0, request->num_tokens() - request->num_slots) + answer);
    keys.reserve(std::max(request->num_tokens(), request->num_slots) + answer);
  }
  waiting_.order([&](const Request& request) { return memory_.num_matched_tokens(request); });
  while (has_room()) {
    Request& request = *waiting_.next();
    // Preempted while its mask was computed.
    request.waits_for_mask = !request.mask_ready();
    if (request.waits_for_mask) return;
    if (!admit(request, slots, keys)) return;
    running_.push_back(waiting_.remove(request.id));
    request.waits_for_copy = !memory_.is_loaded(request);
    // A request that waits for an image is admitted, since images of running requests are encoded.
    if (schedule_chunk(request) || request.waits_for_image() || request.waits_for_copy) continue;
    // No token of the request fits into this step: the next step admits it.
    memory_.release(request);
    waiting_.push(std::move(running_.back()));
    running_.pop_back();
    return;
  }
}

bool Scheduler::admit(Request& request, AdmissionBudget& slots, AdmissionBudget& keys) {
  // The prefix is locked before the budgets are compared: unlocked pages count as available.
  const int num_available = memory_.num_available_pages();
  CachedPrefix prefix = memory_.find_prefix(request);
  if (prefix.loading()) return false;
  slots.reserve(1.0 * (num_available - memory_.num_available_pages()) * memory_.page_size());
  const int num_new = request.num_tokens() - prefix.lock.num_pages() * memory_.page_size();
  const int answer = num_planned(request);
  // The only request always fits: see check().
  if (!running_.empty() && (!slots.fits(num_new, answer) || !keys.fits(request.num_tokens(), answer)))
    return false;
  if (!memory_.admit(request, std::move(prefix))) return false;
  if (!skip_tokens(request)) {
    memory_.release(request);
    return false;
  }
  if (request.pools) {  // no output to reserve
    slots.reserve(round_up(num_new, memory_.page_size()));
    keys.reserve(num_new);
  } else {
    slots.charge(num_new, answer);
    keys.charge(request.num_tokens(), answer);
  }
  request.times.admitted = Clock::now();
  return true;
}

// Grows in chunks of at most a step's tokens, like a computed prompt: the pool of sliding-window layers has
// room for a window and the tokens of one step.
bool Scheduler::skip_tokens(Request& request) {
  while (request.num_computed < request.num_skipped) {
    const int end = std::min(request.num_skipped, request.num_computed + limits_.max_tokens);
    if (!memory_.skip(request, end)) return false;
  }
  return true;
}

int Scheduler::num_planned(const Request& request) const {
  const auto longest = std::min<int64_t>(memory_.num_total_slots(), memory_.max_kv_tokens());
  return static_cast<int>(
      std::clamp<int64_t>(longest - request.num_tokens(), 0, num_planned_tokens(request)));
}

size_t Scheduler::choose_victim() const {
  const auto precedes = [&](const Request& a, const Request& b) {
    if (options_.policy == SchedulePolicy::kPriority && a.priority != b.priority)
      return a.priority < b.priority;
    return is_preempted_before(a, b);
  };
  size_t victim = 0;
  // The last admitted request of equal ones is preempted.
  for (size_t i = 1; i < running_.size(); ++i)
    if (!precedes(*running_[victim], *running_[i])) victim = i;
  return victim;
}

void Scheduler::preempt(size_t running_idx) {
  const auto victim = running_.begin() + static_cast<std::ptrdiff_t>(running_idx);
  memory_.release(**victim);
  ++(*victim)->num_preemptions;
  ++num_preemptions_;
  waiting_.push(std::move(*victim));
  running_.erase(victim);
}

void Scheduler::preempt_all(bool drops_images) {
  while (!running_.empty()) preempt(running_.size() - 1);
  waiting_.for_each([&](Request& request) {
    request.tier_search = nullptr;
    if (drops_images) request.encoded.clear();
  });
}

void Scheduler::remove_deadline(const Request& request) {
  if (request.deadline) deadlines_.erase({*request.deadline, request.id});
}

std::unique_ptr<Request> Scheduler::finish(RequestId id) {
  const auto found =
      std::find_if(running_.begin(), running_.end(), [&](const auto& request) { return request->id == id; });
  ensure(found != running_.end(), "request ", id, " finished but is not running");
  std::unique_ptr<Request> request = std::move(*found);
  running_.erase(found);
  for (ScheduledStep& step : steps_)
    for (ScheduledRequest& part : step.requests)
      if (part.request == request.get()) part.request = nullptr;
  remove_deadline(*request);
  // The request may have ended within its draft: accepted tokens after the end are dropped.
  request->num_computed = std::min(request->num_computed, request->num_tokens());
  if (!inconsistency_.empty()) return request;
  try {
    if (request->finish_reason != FinishReason::kError) memory_.checkpoint(*request);
    memory_.release(*request);
  } catch (const std::exception& error) {
    inconsistency_ = error.what();
  }
  return request;
}

std::unique_ptr<Request> Scheduler::abort(RequestId id) {
  const auto is_same = [&](const auto& request) { return request->id == id; };
  if (std::any_of(running_.begin(), running_.end(), is_same)) return finish(id);
  std::unique_ptr<Request> request = waiting_.remove(id);
  if (request) remove_deadline(*request);
  return request;
}

}  // namespace attend
