// Random arrivals and cancellations over pools of any size, up to those that hold hardly a request: nothing
// is lost, nobody starves, and each request ends with the tokens it asked for.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "attend/base/math.h"
#include "attend/engine/scheduler.h"

namespace attend {
namespace {

// A scheduler over real pools, and what is known of its requests.
class World {
 public:
  World()
      : limits_{.max_reqs = *rc::gen::inRange(1, 6), .max_tokens = 0, .max_kv_tokens = 0},
        slots_(make_allocator(*rc::gen::element(1, 2, 4, 16), *rc::gen::inRange(3, 20))),
        rows_(limits_.max_reqs, kContext) {
    limits_.max_tokens = limits_.max_reqs + *rc::gen::inRange(0, 20);
    limits_.max_kv_tokens = *rc::gen::inRange(2, slots_->num_total_slots() + 2);
    scheduler_ = std::make_unique<Scheduler>(limits_, rows_, *slots_);
  }

  void submit() {
    const auto longest = static_cast<int>(
        std::min<int64_t>(std::min(kContext, slots_->num_total_slots()), limits_.max_kv_tokens));
    if (longest < 2) return;
    auto request = std::make_unique<Request>();
    request->id = next_id_++;
    request->num_prompt = *rc::gen::inRange(1, longest);
    request->params.max_new_tokens = *rc::gen::inRange(1, longest - request->num_prompt + 1);
    request->tokens.resize(static_cast<size_t>(request->num_prompt));
    requests_.emplace(request->id, request.get());
    scheduler_->submit(std::move(request));
  }

  // A client that goes away while its request runs.
  void cancel() {
    for (const auto& [id, request] : requests_)
      if (request->row != kPaddingRow) {
        finish(id);
        return;
      }
  }

  // Returns false when there was nothing to do.
  bool step() {
    const ScheduledStep& step = scheduler_->schedule();
    check_step(step);
    check_pools();
    std::vector<RequestId> finished;
    for (const ScheduledRequest& part : step.requests) {
      const bool samples = part.samples();
      part.request->num_computed += part.num_new;
      if (samples) part.request->tokens.push_back(7);
      if (part.request->num_output() == part.request->params.max_new_tokens)
        finished.push_back(part.request->id);
    }
    for (const RequestId id : finished) finish(id);
    check_pools();
    return !step.requests.empty();
  }

  void check_all_ended() const {
    RC_ASSERT(requests_.empty() && scheduler_->idle());
    RC_ASSERT(slots_->num_used_slots() == 0);
    RC_ASSERT(rows_.num_free() == limits_.max_reqs);
  }
  int num_preemptions() const { return num_preemptions_; }

 private:
  static constexpr int kContext = 40;

  void finish(RequestId id) {
    const std::unique_ptr<Request> request = scheduler_->finish(id);
    RC_ASSERT(request->id == id);
    num_preemptions_ += request->num_preemptions;
    requests_.erase(id);
  }

  void check_step(const ScheduledStep& step) const {
    std::set<RequestId> parts;
    int num_tokens = 0;
    for (const auto& [request, num_new] : step.requests) {
      RC_ASSERT(parts.insert(request->id).second);
      RC_ASSERT(num_new >= 1 && num_new <= request->num_to_compute());
      RC_ASSERT(request->num_computed + num_new <= request->num_slots);
      num_tokens += num_new;
    }
    RC_ASSERT(step.num_tokens == num_tokens && num_tokens <= limits_.max_tokens);
    RC_ASSERT(static_cast<int>(parts.size()) ==
              scheduler_->num_running());            // everybody who runs goes forward
    RC_ASSERT(requests_.empty() || !parts.empty());  // somebody always does
  }

  // free + in use = total for rows and slots, and no slot belongs to two requests.
  void check_pools() const {
    slots_->check_conservation();
    std::set<RequestRow> rows;
    std::set<TokenSlot> slots;
    int num_used = 0;
    for (const auto& [id, request] : requests_) {
      if (request->row == kPaddingRow) {
        RC_ASSERT(request->num_slots == 0 && request->num_computed == 0);
        continue;
      }
      RC_ASSERT(rows.insert(request->row).second);
      num_used += round_up(request->num_slots, slots_->page_size());
      const View<const TokenSlot> row = rows_.row(request->row);
      for (int p = 0; p < kContext; ++p) {
        const TokenSlot slot = row[static_cast<size_t>(p)];
        RC_ASSERT((p < request->num_slots) == (slot.value >= slots_->page_size()));
        if (p < request->num_slots) RC_ASSERT(slots.insert(slot).second);
      }
    }
    RC_ASSERT(static_cast<int>(rows.size()) == scheduler_->num_running());
    RC_ASSERT(rows_.num_free() + static_cast<int>(rows.size()) == limits_.max_reqs);
    RC_ASSERT(slots_->num_used_slots() == num_used);
    RC_ASSERT(slots_->num_free_slots() + num_used == slots_->num_total_slots());
  }

  BatchLimits limits_;
  std::unique_ptr<SlotAllocator> slots_;
  ReqToTokenPool rows_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, const Request*> requests_;  // that have not ended
  RequestId next_id_ = 1;
  int num_preemptions_ = 0;
};

RC_GTEST_PROP(SchedulerProperty, LosesNothingAndStarvesNobodyOverRandomArrivals, ()) {
  World world;
  const int num_events = *rc::gen::inRange(1, 60);
  for (int event = 0; event < num_events; ++event) {
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
      case 1:
        world.submit();
        break;
      case 2:
        world.cancel();
        break;
      default:
        world.step();
    }
  }
  int num_steps = 0;
  while (world.step()) RC_ASSERT(++num_steps < 100'000);
  world.check_all_ended();
  RC_CLASSIFY(world.num_preemptions() > 0, "with preemptions");
}

}  // namespace
}  // namespace attend
