// Requests with every kind of cache group: token slots, a window half, and a recurrent state with snapshots.
// RequestMemory knows them only by their interface.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "attend/base/math.h"
#include "attend/engine/schedule/request_memory.h"
#include "tests/engine/schedule/state_group.h"

namespace attend {
namespace {

using test::StateGroup;

int below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

// Cache group that matches every prefix and records the longest one, which is what the prefix cache found.
// Checks the arguments of begin() and grow().
class RecordingGroup final : public CacheGroup {
 public:
  explicit RecordingGroup(std::vector<PageId>& longest) : longest_(longest) {}

  int match(View<const PageId> prefix) const override {
    if (prefix.size() > longest_.size()) longest_.assign(prefix.begin(), prefix.end());
    return static_cast<int>(prefix.size());
  }
  bool can_skip() const override { return true; }
  int grid() const override { return 1; }
  void begin(RequestRow, int first_page, View<const PageId> pages, int num_found) override {
    RC_ASSERT(std::ssize(pages) <= num_found);
    RC_ASSERT(num_found == std::ssize(pages) || (first_page == 0 && num_found == std::ssize(longest_)));
  }
  std::optional<int> pages_to_evict(int) const override { return 0; }
  void grow(RequestRow, int num_before, int num_after, const NewTokens& tokens) override {
    RC_ASSERT(num_before < num_after);
    RC_ASSERT(!tokens.is_prompt || num_after <= tokens.prompt_end);
  }
  void advance(RequestRow, int) override {}
  void rewind(RequestRow, int, int) override {}
  void snapshot(RequestRow, int) override {}
  void replace(RequestRow, int, View<const PageId>, View<const PageId>) override {}
  void release(RequestRow, int) override {}
  void forget(View<const PageId>) override {}
  void reset() override {}
  void check(View<const CachedRow>) const override {}

 private:
  std::vector<PageId>& longest_;
};

class CacheGroupSimulation {
 public:
  explicit CacheGroupSimulation(bool with_state = true)
      : page_size_(*rc::gen::element(1, 2, 4)),
        slots_(make_allocator(page_size_, 12 + below(40))),
        rows_(kMaxReqs, kContext) {
    std::vector<std::unique_ptr<CacheGroup>> others;
    if (below(2) == 0) {
      const int window_left = below(8), num_pages = slots_->num_total_slots() / page_size_;
      const int needed = std::min(num_pages, ceil_div(window_left + 1 + kChunk, page_size_) + 2);
      swa_ =
          std::make_unique<SwaSlots>(page_size_, num_pages + 1, needed + below(num_pages - needed + 1) + 1);
      others.push_back(make_window_group(rows_, *swa_, window_left));
      window_ = others.back().get();
    }
    if (with_state) {
      auto state =
          std::make_unique<StateGroup>(rows_, page_size_, 4 / page_size_ * (1 + below(2)), 1 + below(24));
      state_ = state.get();
      others.push_back(std::move(state));
      if (below(2) == 0) std::swap(others.front(), others.back());
    }
    std::vector<std::unique_ptr<CacheGroup>> groups;
    groups.push_back(make_paged_group(rows_, *slots_));
    groups.push_back(std::make_unique<RecordingGroup>(found_));
    for (auto& group : others) groups.push_back(std::move(group));
    memory_ = std::make_unique<RequestMemory>(int64_t{kMaxReqs} * kContext, rows_, *slots_,
                                              EvictionPolicy::kLru, std::move(groups));
  }

  void start() {
    auto request = std::make_unique<Request>();
    request->id = ++num_started_;
    request->num_prompt = 1 + below(kContext - 8);
    // Often starts with tokens of an earlier prompt, so that prefixes fork at any position.
    if (!prompts_.empty() && below(3) > 0)
      request->tokens = prompts_[static_cast<size_t>(below(static_cast<int>(prompts_.size())))];
    request->tokens.resize(std::min(request->tokens.size(), static_cast<size_t>(below(kContext))));
    request->tokens.resize(std::min(request->tokens.size(), static_cast<size_t>(request->num_prompt)));
    while (request->num_tokens() < request->num_prompt) request->tokens.push_back(below(2));
    prompts_.push_back(request->tokens);
    admit(std::move(request));
  }

  // Runs a chunk of a random request's prompt, or its next token with drafts.
  void step() {
    Request* const request = random_request();
    if (request == nullptr) return;
    memory_->begin_step();
    memory_->match_more(*request);
    const bool decoding = request->decoding();
    const int num_draft_slots = decoding ? below(std::min(5, kContext - request->num_tokens())) : 0;
    const int num_new =
        decoding ? 1 : 1 + below(std::min(kChunk, request->num_tokens() - request->num_computed));
    const int end = request->num_computed + num_new;
    if (!memory_->grow(*request, end)) return preempt(*request);
    int num_draft =
        num_draft_slots > 0 && memory_->grow(*request, end + num_draft_slots) ? num_draft_slots : 0;
    if (!decoding) memory_->share_before_compute(*request, end);
    if (num_draft > 0) num_draft = settle(*request, end, num_draft);
    std::vector<int32_t> tokens(request->tokens.begin(), request->tokens.begin() + end);
    for (int i = 0; i < num_draft; ++i) tokens.push_back(below(2));
    compute(*request, tokens);
    const int num_accepted = below(num_draft + 1);
    request->num_computed = end + num_accepted;
    memory_->advance(*request);
    if (num_accepted < num_draft) memory_->rewind(*request, request->num_computed);
    if (decoding)
      request->tokens.assign(tokens.begin(), tokens.begin() + request->num_computed);
    else
      memory_->checkpoint(*request);
    if (request->num_computed == request->num_tokens()) request->tokens.push_back(below(2));
    check();
    if (request->num_tokens() >= kContext) end_request(*request);
  }

  void end_one() {
    if (Request* const request = random_request()) end_request(*request);
  }
  // Preempts a random request, which is sometimes admitted again with its answer.
  void preempt_one() {
    if (Request* const request = random_request()) preempt(*request);
  }
  void flush() { memory_->flush(); }

  void check() const {
    std::vector<Request*> running;
    for (const auto& request : running_) running.push_back(request.get());
    memory_->check(running);
  }

  void check_all_memory_is_freed() {
    while (!running_.empty()) end_request(*running_.back());
    memory_->flush();
    RC_ASSERT(slots_->num_used_slots() == 0);
    if (swa_) RC_ASSERT(swa_->num_referenced_pages() == 0);
    if (state_ != nullptr) RC_ASSERT(state_->num_snapshots() == 0);
    RC_ASSERT(rows_.num_free() == kMaxReqs);
    RC_ASSERT(memory_->num_held_tokens() == 0);
  }

  const StateGroup& state() const { return *state_; }
  bool cut_by_both() const { return cut_by_both_; }
  bool has_returned_slots() const { return has_returned_slots_; }
  int64_t num_evicted() const { return memory_->num_evicted_pages(); }

 private:
  static constexpr int kContext = 48, kMaxReqs = 4, kChunk = 8;

  Request* random_request() {
    if (running_.empty()) return nullptr;
    return running_[static_cast<size_t>(below(static_cast<int>(running_.size())))].get();
  }

  void admit(std::unique_ptr<Request> request) {
    found_.clear();
    CachedPrefix prefix = memory_->find_prefix(*request);
    check_prefix(prefix);
    const auto num_pages = static_cast<int>(prefix.pages.size());
    if (!memory_->admit(*request, std::move(prefix))) {
      RC_ASSERT(rows_.num_free() == 0);
      return;
    }
    RC_ASSERT(request->num_computed == num_pages * page_size_);
    running_.push_back(std::move(request));
    check();
  }

  // Checks the prefix against the longest one that every group can restore, found by trying all lengths.
  void check_prefix(const CachedPrefix& prefix) {
    const auto by_window = [&](size_t n) {
      const View<const PageId> pages = View<const PageId>(found_).first(n);
      return window_ == nullptr || window_->match(pages) == static_cast<int>(n);
    };
    const auto by_state = [&](size_t n) { return n == 0 || !state_ || state_->has_snapshot(found_[n - 1]); };
    size_t longest = found_.size(), by_window_only = found_.size(), by_state_only = found_.size();
    while (!by_window(longest) || !by_state(longest)) --longest;
    while (!by_window(by_window_only)) --by_window_only;
    while (!by_state(by_state_only)) --by_state_only;
    RC_ASSERT(prefix.pages == std::vector<PageId>(found_.begin(), found_.begin() + longest));
    RC_ASSERT(prefix.lock.num_pages() == static_cast<int>(longest));
    cut_by_both_ |= longest < std::min(by_window_only, by_state_only);
  }

  void compute(const Request& request, const std::vector<int32_t>& tokens) {
    if (state_ == nullptr) return;
    std::vector<uint64_t> keys;
    uint64_t key = 1;
    for (const int32_t token : tokens)
      keys.push_back(key = (key ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ull);
    state_->compute(request.row, request.num_computed, keys);
  }

  // Frees slots of drafts that are not made. Returns the number of drafts.
  int settle(Request& request, int end, int num_draft_slots) {
    const int num_draft = below(num_draft_slots + 1);
    if (num_draft == num_draft_slots) return num_draft;
    memory_->rewind(request, end + num_draft);
    RC_ASSERT(request.num_slots == end + num_draft);
    has_returned_slots_ = true;
    check();
    return num_draft;
  }

  std::unique_ptr<Request> take(const Request& request) {
    const auto found = std::ranges::find(running_, &request, &std::unique_ptr<Request>::get);
    std::unique_ptr<Request> taken = std::move(*found);
    running_.erase(found);
    return taken;
  }

  void preempt(Request& request) {
    std::unique_ptr<Request> taken = take(request);
    memory_->release(*taken);
    check();
    if (below(2) == 0) admit(std::move(taken));
  }

  void end_request(Request& request) {
    const std::unique_ptr<Request> ended = take(request);
    // A stop token may end the answer before the last computed token.
    if (below(4) == 0) ended->num_computed -= below(std::min(2, ended->num_computed + 1));
    memory_->checkpoint(*ended);
    memory_->release(*ended);
    check();
  }

  int page_size_;
  std::unique_ptr<SlotAllocator> slots_;
  ReqToTokenPool rows_;
  std::unique_ptr<SwaSlots> swa_;
  std::vector<PageId> found_;  // pages that the prefix cache found for the last request
  CacheGroup* window_ = nullptr;
  StateGroup* state_ = nullptr;
  std::unique_ptr<RequestMemory> memory_;
  std::vector<std::unique_ptr<Request>> running_;
  std::vector<std::vector<int32_t>> prompts_;
  RequestId num_started_ = 0;
  bool cut_by_both_ = false, has_returned_slots_ = false;
};

void run_random_events(CacheGroupSimulation& simulation) {
  for (int event = 20 + below(120); event > 0; --event) {
    const int kind = below(24);
    if (kind < 4)
      simulation.start();
    else if (kind < 6)
      simulation.end_one();
    else if (kind < 8)
      simulation.preempt_one();
    else if (kind == 8 && below(4) == 0)
      simulation.flush();
    else
      simulation.step();
  }
  simulation.check_all_memory_is_freed();
}

RC_GTEST_PROP(CacheGroups, RestoreTheLongestPrefixOfEveryGroupAndFreeAllMemory, ()) {
  CacheGroupSimulation simulation;
  run_random_events(simulation);
  RC_CLASSIFY(simulation.state().num_restored() > 0, "with states restored from snapshots");
  RC_CLASSIFY(simulation.state().num_saved_forks() > 0, "with states saved at forks");
  RC_CLASSIFY(simulation.state().num_replayed() > 0, "with states restored after rejected drafts");
  RC_CLASSIFY(simulation.has_returned_slots(), "with slots whose tokens were never computed");
  RC_CLASSIFY(simulation.cut_by_both(), "with a prefix shorter than that of either group");
  RC_CLASSIFY(simulation.num_evicted() > 0, "with evictions");
}

RC_GTEST_PROP(CacheGroups, WithoutRecurrentStatesFreeAllMemory, ()) {
  CacheGroupSimulation simulation(/*with_state=*/false);
  run_random_events(simulation);
}

// Pages of 4 tokens in both halves. 6 tokens are computed, 7 more have slots for drafts, and 2 drafts are
// made.
TEST(CacheGroups, RewindFreesSlotsOfUncomputedTokens) {
  ReqToTokenPool rows(1, 32);
  const auto slots = make_allocator(4, 9);
  SwaSlots swa(4, 9, 9);
  std::vector<std::unique_ptr<CacheGroup>> groups;
  groups.push_back(make_paged_group(rows, *slots));
  groups.push_back(make_window_group(rows, swa, 31));
  groups.push_back(std::make_unique<StateGroup>(rows, 4, 1, 8));
  auto& state = static_cast<StateGroup&>(*groups.back());
  RequestMemory memory(64, rows, *slots, EvictionPolicy::kLru, std::move(groups));
  Request request;
  request.tokens = {11, 12, 13, 14, 15, 16};
  request.num_prompt = 6;
  ASSERT_TRUE(memory.admit(request, {}));
  ASSERT_TRUE(memory.grow(request, 6));
  std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6};
  state.compute(request.row, 0, keys);
  request.num_computed = 6;
  memory.advance(request);
  request.tokens.push_back(17);
  ASSERT_TRUE(memory.grow(request, 7));
  ASSERT_TRUE(memory.grow(request, 7 + 7));
  EXPECT_EQ(slots->num_used_slots(), 16);
  EXPECT_EQ(swa.num_referenced_pages(), 4);

  memory.rewind(request, 7 + 2);
  EXPECT_EQ(request.num_slots, 9);
  EXPECT_EQ(memory.num_held_tokens(), 9);
  EXPECT_EQ(slots->num_used_slots(), 12);
  EXPECT_EQ(swa.num_referenced_pages(), 3);
  Request* const running[] = {&request};
  memory.check(running);
  for (size_t p = 0; p < 14; ++p) EXPECT_EQ(rows.row(request.row)[p].value > 0, p < 9) << p;
  EXPECT_EQ(state.num_replayed(), 0) << "no state was computed after position 6";

  // The step computes both drafts, and both are rejected.
  keys.insert(keys.end(), {7, 8, 9});
  state.compute(request.row, 6, keys);
  request.num_computed = 7;
  memory.advance(request);
  memory.rewind(request, 7);
  EXPECT_EQ(state.num_replayed(), 1);
  EXPECT_EQ(slots->num_used_slots(), 8);
  memory.check(running);
  memory.release(request);
  EXPECT_EQ(slots->num_used_slots(), 0);
}

}  // namespace
}  // namespace attend
