// Random submissions and cancellations on pools of any size, down to less than one request, with and without
// a prefix cache. No request is lost or starves, each ends with its requested number of tokens, and every key
// that it reads belongs to one of its own tokens, also in layers with a window, which may have their own half
// of the pool. With recurrent layers, each step continues from the state of the tokens before it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "attend/base/log.h"
#include "attend/base/math.h"
#include "attend/engine/schedule/scheduler.h"
#include "attend/engine/speculation/drafter.h"
#include "tests/engine/schedule/state_group.h"

namespace attend {
namespace {

// Uniform, also for small test sizes.
int random_below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

// K/V of a token. It depends on all tokens before it and on the salt.
uint64_t key_after(uint64_t key, int32_t token) {
  return (key ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ull;
}

// A scheduler on real pools, the requests that it runs, and the K/V that a model would have stored.
class SchedulerSimulation {
 public:
  explicit SchedulerSimulation(bool drafts = false)
      : limits_{.max_reqs = 1 + random_below(5), .max_tokens = 0, .max_kv_tokens = 0},
        slots_(make_allocator(*rc::gen::element(1, 2, 4, 16), 3 + random_below(20))),
        rows_(limits_.max_reqs, kContext),
        stored_(static_cast<size_t>(slots_->num_total_slots() + slots_->page_size())) {
    limits_.max_tokens = limits_.max_reqs + random_below(24);
    limits_.max_kv_tokens =
        random_below(2) == 0 ? 4 * slots_->num_total_slots() : 2 + random_below(slots_->num_total_slots());
    std::optional<EvictionPolicy> caching;
    if (random_below(4) > 0)
      caching = *rc::gen::element(EvictionPolicy::kLru, EvictionPolicy::kLfu, EvictionPolicy::kPriority);
    if (random_below(2) == 0) add_window_half();
    memory_ = std::make_unique<RequestMemory>(limits_.max_kv_tokens, rows_, *slots_, caching, make_groups());
    const ScheduleOptions options{
        .policy = *rc::gen::element(SchedulePolicy::kFcfs, SchedulePolicy::kLpm, SchedulePolicy::kLof,
                                    SchedulePolicy::kPriority),
        .conservativeness = *rc::gen::element(0.0, 1.0),
        .max_queued_requests = 0};
    limits_.max_draft_tokens = drafts ? 1 + random_below(12) : 0;
    const DraftRules rules{.max_tokens = drafts ? 1 + random_below(6) : 0, .max_reqs = 1 + random_below(4)};
    scheduler_ = std::make_unique<Scheduler>(limits_, *memory_, options, rules);
  }

  void submit() {
    const auto longest = static_cast<int>(
        std::min<int64_t>(std::min(kContext, slots_->num_total_slots()), limits_.max_kv_tokens));
    if (longest < 2) return;
    auto request = std::make_unique<Request>();
    request->id = next_id_++;
    request->num_prompt = 1 + random_below(longest - 1);
    const int length = 1 + random_below(longest - request->num_prompt);
    lengths_[request->id] = length;
    // The answer may be longer or shorter than planned.
    request->params.max_new_tokens = *rc::gen::element(length, 1, length + 3);
    // Runs of one token, so that prompts share prefixes.
    while (static_cast<int>(request->tokens.size()) < request->num_prompt)
      request->tokens.insert(request->tokens.end(),
                             static_cast<size_t>(1 + random_below(slots_->page_size())), random_below(3));
    request->tokens.resize(static_cast<size_t>(request->num_prompt));
    request->cache_salt = random_below(8) == 0 ? "salt" : "";
    request->priority = random_below(3);
    requests_.emplace(request->id, request.get());
    scheduler_->submit(std::move(request));
  }

  // Cancels a running request, as a client that disconnects.
  void cancel() {
    for (const auto& [id, request] : requests_)
      if (request->row != kPaddingRow) {
        finish(id);
        return;
      }
  }

  // Returns false if there was nothing to do. With `ahead`, the next step may be in flight on return: the
  // model has run it (devices run steps in order), but the scheduler does not know its tokens.
  bool step(bool ahead = false) {
    if (in_flight_.step == nullptr) {
      ScheduledStep& step = scheduler_->schedule();
      check_reserved(step);
      drafter_.draft(step);
      scheduler_->settle_drafts();
      check_step(step);
      in_flight_ = launch(step);
    }
    const Flight flight = std::move(in_flight_);
    in_flight_ = {};
    if (ScheduledStep* const next = ahead ? scheduler_->schedule_overlapped(longest_request()) : nullptr) {
      check_step_ahead(*next, flight);
      in_flight_ = launch(*next, &flight);
    }
    if (!flight.step->advanced) scheduler_->advance();
    check_pools();
    for (size_t i = 0; i < flight.tokens.size(); ++i)
      for (const int32_t token : flight.tokens[i]) {
        Request* const request = flight.step->requests[i].request;
        if (request == nullptr) continue;  // the request ended within its draft
        request->tokens.push_back(token);
        if (request->num_output() == lengths_.at(request->id)) finish(request->id);
      }
    check_pools();
    return !flight.tokens.empty();
  }

  void flush() { memory_->flush(); }

  // Corrupts the accounting: allocates or frees a page that belongs to no request.
  void corrupt_accounting() {
    if (in_flight_.step != nullptr) step();
    const int32_t before = 0, after = 1;
    std::vector<TokenSlot> slot(1);
    if (random_below(2) == 0 || slots_->num_used_slots() == 0) {
      if (!slots_->alloc_extend({&before, 1}, {&after, 1}, {&kNoSlot, 1}, slot)) return;
    } else {
      for (const auto& [id, request] : requests_)
        if (request->num_slots > 0) {
          slots_->free(rows_.row(request->row).first(1));
          break;
        }
    }
    step();
  }

  void check_all_ended() const {
    RC_ASSERT(requests_.empty() && scheduler_->idle());
    memory_->flush();
    RC_ASSERT(slots_->num_used_slots() == 0);
    RC_ASSERT(rows_.num_free() == limits_.max_reqs);
  }
  int num_preemptions() const { return num_preemptions_; }
  bool has_shared() const { return memory_->num_cached_tokens() > 0; }
  bool has_shared_within_a_step() const { return has_shared_within_a_step_; }
  int64_t num_recoveries() const { return scheduler_->num_recoveries(); }

  bool has_window_half() const { return swa_ != nullptr; }
  bool has_restored_states() const { return state_ != nullptr && state_->num_restored() > 0; }
  bool has_saved_forks() const { return state_ != nullptr && state_->num_saved_forks() > 0; }
  bool has_replayed_states() const { return state_ != nullptr && state_->num_replayed() > 0; }
  int num_ahead() const { return num_ahead_; }
  int num_ended_in_flight() const { return num_ended_in_flight_; }
  bool accepted_and_rejected() const { return num_accepted_ > 0 && num_rejected_ > 0; }

 private:
  static constexpr int kContext = 40;

  // A launched step and the tokens that it produces for each request: none for a request that does not
  // sample, the accepted drafts plus one for a request with drafts.
  struct Flight {
    ScheduledStep* step = nullptr;
    std::vector<std::vector<int32_t>> tokens;
  };

  // Drafts random tokens, sometimes none. All drafts together may exceed the room of the step.
  class AnyDrafter final : public Drafter {
   public:
    void draft(const ScheduledStep& step) override {
      for (const ScheduledRequest& part : step.requests) {
        if (part.num_draft_slots == 0) continue;
        std::vector<int32_t>& tokens = part.request->draft.tokens;
        tokens.resize(static_cast<size_t>(random_below(part.num_draft_slots + 1)));
        for (int32_t& token : tokens) token = random_below(3);
      }
    }
  };

  int64_t longest_request() const {
    return std::min<int64_t>(std::min(kContext, slots_->num_total_slots()), limits_.max_kv_tokens);
  }

  Flight launch(ScheduledStep& step, const Flight* before = nullptr) {
    check_pools();
    store_and_read(step, before);
    Flight flight{.step = &step, .tokens = {}};
    for (ScheduledRequest& part : step.requests) {
      std::vector<int32_t>& tokens = flight.tokens.emplace_back();
      if (!part.samples()) continue;
      part.num_accepted = part.num_kept = random_below(part.num_draft + 1);
      const auto draft = part.request->draft.tokens.begin();
      tokens.assign(draft, draft + part.num_accepted);
      tokens.push_back(random_below(3));
      num_rejected_ += part.num_rejected();
      num_accepted_ += part.num_accepted;
    }
    return flight;
  }

  // Between the pages that one request needs and those of the full half.
  void add_window_half() {
    window_left_ = random_below(24);
    const int page_size = slots_->page_size(), num_pages = slots_->num_total_slots() / page_size;
    const int needed = ceil_div(window_left_ + 1 + limits_.max_tokens, page_size) + 2;
    const int num_swa_pages = needed >= num_pages ? num_pages : needed + random_below(num_pages - needed + 1);
    swa_ = std::make_unique<SwaSlots>(page_size, num_pages + 1, num_swa_pages + 1);
    swa_stored_.resize(static_cast<size_t>((num_swa_pages + 1) * page_size));
  }

  std::vector<std::unique_ptr<CacheGroup>> make_groups() {
    std::vector<std::unique_ptr<CacheGroup>> groups;
    groups.push_back(make_paged_group(rows_, *slots_));
    if (swa_) groups.push_back(make_window_group(rows_, *swa_, window_left_));
    if (random_below(2) == 0) {
      auto state = std::make_unique<test::StateGroup>(rows_, slots_->page_size(), 1 + random_below(3),
                                                      random_below(8));
      state_ = state.get();
      groups.push_back(std::move(state));
    }
    return groups;
  }

  uint64_t& swa_stored_of(TokenSlot slot) {
    const SwaSlot swa_slot = swa_->translate(slot);
    RC_ASSERT(swa_slot.value >= slots_->page_size());
    return swa_stored_[static_cast<size_t>(swa_slot.value)];
  }

  void finish(RequestId id) {
    if (in_flight_.step != nullptr)
      num_ended_in_flight_ += static_cast<int>(std::ranges::count_if(
          in_flight_.step->requests,
          [&](const ScheduledRequest& part) { return part.request != nullptr && part.request->id == id; }));
    const std::unique_ptr<Request> request = scheduler_->finish(id);
    RC_ASSERT(request->id == id);
    RC_ASSERT(request->num_cached_tokens < request->num_prompt);
    num_preemptions_ += request->num_preemptions;
    requests_.erase(id);
  }

  // Called before drafts are settled: decoding requests have slots for drafts and no drafts yet.
  void check_reserved(const ScheduledStep& step) const {
    int num_slots = 0;
    for (const ScheduledRequest& part : step.requests) {
      RC_ASSERT(part.num_draft == 0 && part.num_draft_slots >= 0);
      if (part.num_draft_slots == 0) continue;
      RC_ASSERT(part.request->decoding() && part.request->draft.tokens.empty());
      RC_ASSERT(part.request->num_slots >= part.request->num_tokens() + part.num_draft_slots);
      num_slots += part.num_draft_slots;
    }
    RC_ASSERT(step.max_draft_tokens <= num_slots && (num_slots == 0 || step.max_draft_tokens > 0));
    RC_ASSERT(step.num_tokens + step.max_draft_tokens <= limits_.max_tokens);
    scheduler_->check_memory();
  }

  void check_step(const ScheduledStep& step) const {
    std::set<RequestId> parts;
    int num_tokens = 0;
    bool has_cut_off_grid = false;
    for (const ScheduledRequest& part : step.requests) {
      const Request& request = *part.request;
      RC_ASSERT(part.previous_index == -1 && !step.ahead);
      RC_ASSERT(parts.insert(request.id).second);
      RC_ASSERT(part.num_new - part.num_draft >= 1 &&
                part.num_new - part.num_draft <= request.num_to_compute());
      RC_ASSERT(part.num_draft_slots == 0);
      RC_ASSERT(request.num_computed + part.num_new <= request.num_slots);
      // Slots without a draft are freed.
      RC_ASSERT(!request.decoding() || request.num_computed + part.num_new == request.num_slots);
      RC_ASSERT(part.num_draft == 0 ||
                (request.decoding() &&
                 request.num_output() + part.num_draft < request.params.max_new_tokens &&
                 request.num_tokens() + part.num_draft < longest_request()));
      num_tokens += part.num_new;
      const int end = request.num_computed + part.num_new;
      if (request.decoding() || end == request.num_tokens()) continue;
      // A chunk that does not end its prompt ends on the grid of all groups, or it is the only prompt of a
      // step without room for the grid.
      if (end % memory_->chunk_grid() == 0) continue;
      RC_ASSERT(part.num_new < memory_->chunk_grid() && std::exchange(has_cut_off_grid, true) == false);
    }
    RC_ASSERT(step.num_tokens == num_tokens && num_tokens <= limits_.max_tokens);
    RC_ASSERT(step.num_draft() <= limits_.max_draft_tokens);
    // Every decoding request progresses in each step.
    for (const auto& [id, request] : requests_)
      if (request->row != kPaddingRow && request->decoding()) RC_ASSERT(parts.contains(id));
    RC_ASSERT(requests_.empty() || !parts.empty());  // at least one request progresses
  }

  // The step contains every running request, with the token that it gets in the previous step, except those
  // that end with that token.
  void check_step_ahead(const ScheduledStep& step, const Flight& before) {
    ++num_ahead_;
    RC_ASSERT(step.ahead && !step.advanced && step.mode == ForwardMode::kDecode && step.prefix_ready);
    RC_ASSERT(step.num_tokens == std::ssize(step.requests) && step.num_tokens > 0);
    RC_ASSERT(before.step->advanced && before.step->mode == ForwardMode::kDecode);
    int last_index = -1;
    for (const ScheduledRequest& part : step.requests) {
      const Request* const request = part.request;
      RC_ASSERT(part.previous_index > last_index);
      last_index = part.previous_index;
      RC_ASSERT(before.step->requests.at(static_cast<size_t>(part.previous_index)).request == request);
      RC_ASSERT(part.num_new == 1 && part.num_draft == 0 && request->num_to_compute() == 0);
      RC_ASSERT(request->num_computed + 1 <= request->num_slots);
      RC_ASSERT(request->num_output() + 1 < request->params.max_new_tokens);
      RC_ASSERT(request->num_tokens() + 1 < longest_request());
    }
    RC_ASSERT(scheduler_->num_waiting() == 0 || step.num_tokens == limits_.max_reqs);
  }

  // Simulates a model's step: stores the K/V of every new token, then reads the K/V before each of them. In a
  // step ahead, the last token of a request is the one that `before` samples.
  void store_and_read(const ScheduledStep& step, const Flight* before) {
    std::set<TokenSlot> written;
    const auto keys_of = [&](const ScheduledRequest& part) {
      const Request& request = *part.request;
      std::vector<uint64_t> keys;
      uint64_t key = request.cache_salt.empty() ? 1 : 2;
      const auto token_at = [&](int p) {
        if (p < request.num_tokens()) return request.tokens[static_cast<size_t>(p)];
        if (part.previous_index < 0)
          return request.draft.tokens.at(static_cast<size_t>(p - request.num_tokens()));
        return before->tokens.at(static_cast<size_t>(part.previous_index)).at(0);
      };
      for (int p = 0; p < request.num_computed + part.num_new; ++p)
        keys.push_back(key = key_after(key, token_at(p)));
      return keys;
    };
    for (const ScheduledRequest& part : step.requests) {
      const Request* const request = part.request;
      const int end = request->num_computed + part.num_new;
      const std::vector<uint64_t> keys = keys_of(part);
      for (auto p = static_cast<size_t>(request->num_computed); p < static_cast<size_t>(end); ++p) {
        const TokenSlot slot = rows_.row(request->row)[p];
        RC_ASSERT(written.insert(slot).second);  // written by only one request
        stored_[static_cast<size_t>(slot.value)] = keys[p];
        if (swa_) swa_stored_of(slot) = keys[p];
      }
      if (state_) state_->compute(request->row, request->num_computed, keys);
    }
    bool prefix_ready = true;
    for (const ScheduledRequest& part : step.requests) {
      const Request* const request = part.request;
      const std::vector<uint64_t> keys = keys_of(part);
      for (size_t p = 0; p < keys.size(); ++p) {
        const TokenSlot slot = rows_.row(request->row)[p];
        RC_ASSERT(stored_[static_cast<size_t>(slot.value)] == keys[p]);
        if (swa_ && static_cast<int>(p) >= request->num_computed - window_left_)
          RC_ASSERT(swa_stored_of(slot) == keys[p]);
        if (p < static_cast<size_t>(request->num_computed) && written.contains(slot)) prefix_ready = false;
      }
    }
    RC_ASSERT(!step.prefix_ready || prefix_ready);
    has_shared_within_a_step_ |= !prefix_ready;
  }

  // Each page has one owner; free + cached + used = total; rows hold the slots of their requests.
  void check_pools() const {
    scheduler_->check_memory();
    std::set<RequestRow> rows;
    for (const auto& [id, request] : requests_) {
      if (request->row == kPaddingRow) {
        RC_ASSERT(request->num_slots == 0 && request->num_computed == 0);
        continue;
      }
      RC_ASSERT(rows.insert(request->row).second);
      const View<const TokenSlot> row = rows_.row(request->row);
      for (int p = 0; p < kContext; ++p) {
        const TokenSlot slot = row[static_cast<size_t>(p)];
        RC_ASSERT((p < request->num_slots) == (slot.value >= slots_->page_size()));
        if (p < request->num_slots) RC_ASSERT(slot.value % slots_->page_size() == p % slots_->page_size());
      }
    }
    RC_ASSERT(static_cast<int>(rows.size()) == scheduler_->num_running());
    RC_ASSERT(rows_.num_free() + static_cast<int>(rows.size()) == limits_.max_reqs);
  }

  BatchLimits limits_;
  std::unique_ptr<SlotAllocator> slots_;
  ReqToTokenPool rows_;
  std::vector<uint64_t> stored_;   // by slot
  std::unique_ptr<SwaSlots> swa_;  // null: layers with a window keep all tokens
  int window_left_ = 0;
  std::vector<uint64_t> swa_stored_;   // by slot of the window half
  test::StateGroup* state_ = nullptr;  // owned by memory_; null: no recurrent layers
  std::unique_ptr<RequestMemory> memory_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, const Request*> requests_;  // requests that have not ended
  std::map<RequestId, int> lengths_;              // lengths of their answers
  RequestId next_id_ = 1;
  Flight in_flight_;
  AnyDrafter drafter_;
  int num_preemptions_ = 0, num_ahead_ = 0, num_ended_in_flight_ = 0;
  int num_accepted_ = 0, num_rejected_ = 0;
  bool has_shared_within_a_step_ = false;
};

void run_random_events(SchedulerSimulation& simulation, bool corrupt_accounting, bool ahead = false) {
  for (int event = 1 + random_below(80); event > 0; --event) {
    switch (random_below(12)) {
      case 0:
      case 1:
      case 2:
        simulation.submit();
        break;
      case 3:
        simulation.cancel();
        break;
      case 4:
        if (random_below(4) == 0) simulation.flush();
        if (corrupt_accounting) simulation.corrupt_accounting();
        break;
      default:
        simulation.step(ahead && random_below(8) > 0);
    }
  }
  int num_steps = 0;
  while (simulation.step(ahead)) RC_ASSERT(++num_steps < 100'000);
  simulation.check_all_ended();
}

RC_GTEST_PROP(SchedulerProperty, RunsEveryRequestOfRandomSubmissionsToItsEnd, ()) {
  SchedulerSimulation simulation;
  run_random_events(simulation, false);
  RC_ASSERT(simulation.num_recoveries() == 0);
  RC_CLASSIFY(simulation.num_preemptions() > 0, "with preemptions");
  RC_CLASSIFY(simulation.has_shared(), "with shared prefixes");
  RC_CLASSIFY(simulation.has_window_half() && simulation.has_shared(),
              "with shared prefixes over a window half");
  RC_CLASSIFY(simulation.has_shared_within_a_step(), "shared within the step that computes them");
  RC_CLASSIFY(simulation.has_restored_states(), "with states restored from snapshots");
  RC_CLASSIFY(simulation.has_saved_forks(), "with states saved at forks");
}

RC_GTEST_PROP(SchedulerProperty, RunsEveryRequestToItsEndWithOverlappedSteps, ()) {
  SchedulerSimulation simulation;
  run_random_events(simulation, false, true);
  RC_ASSERT(simulation.num_recoveries() == 0);
  RC_CLASSIFY(simulation.num_ahead() > 0, "with steps ahead");
  RC_CLASSIFY(simulation.num_ended_in_flight() > 0, "with requests that end while in flight");
  RC_CLASSIFY(simulation.num_ahead() > 0 && simulation.has_window_half(),
              "with steps ahead over a window half");
}

RC_GTEST_PROP(SchedulerProperty, RunsEveryRequestToItsEndWithAcceptedAndRejectedDrafts, ()) {
  SchedulerSimulation simulation(/*drafts=*/true);
  run_random_events(simulation, false, *rc::gen::arbitrary<bool>());
  RC_ASSERT(simulation.num_recoveries() == 0);
  RC_CLASSIFY(simulation.accepted_and_rejected(), "with accepted and rejected drafts");
  RC_CLASSIFY(simulation.accepted_and_rejected() && simulation.num_preemptions() > 0, "and preemptions");
  RC_CLASSIFY(simulation.accepted_and_rejected() && simulation.has_window_half(), "and a window half");
  RC_CLASSIFY(simulation.accepted_and_rejected() && simulation.num_ahead() > 0, "and steps ahead");
  RC_CLASSIFY(simulation.has_replayed_states(), "and recurrent states");
}

RC_GTEST_PROP(SchedulerProperty, RecoversFromCorruptAccounting, ()) {
  set_log_level(LogLevel::kError);
  SchedulerSimulation simulation;
  run_random_events(simulation, true, *rc::gen::arbitrary<bool>());
  set_log_level(LogLevel::kInfo);
  RC_CLASSIFY(simulation.num_recoveries() > 0, "with recoveries");
}

}  // namespace
}  // namespace attend
