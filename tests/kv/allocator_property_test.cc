// Random admissions, decodes, extends, ends and invalid calls, compared with a model of allocated slots.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kv/allocator.h"

namespace attend {
namespace {

int number_below(int end) { return *rc::gen::inRange(0, end); }

struct ModelRequest {
  std::vector<TokenSlot> slots;  // of positions 0, 1, ...

  int32_t seqlen() const { return static_cast<int32_t>(slots.size()); }
  TokenSlot last() const { return slots.empty() ? kNoSlot : slots.back(); }
};

class Model {
 public:
  Model(int page_size, int num_pages) : allocator_(make_allocator(page_size, num_pages)) {}

  int num_requests() const { return static_cast<int>(requests_.size()); }
  const SlotAllocator& allocator() const { return *allocator_; }

  // Grows requests by num_new_tokens[i] tokens: running requests first, then new ones.
  void extend(const std::vector<int>& num_new_tokens) {
    std::vector<ModelRequest> batch(num_new_tokens.size());
    std::vector<int32_t> prefix_lens, seqlens;
    std::vector<TokenSlot> last_slots;
    int64_t num_new = 0, needed = 0;
    for (size_t i = 0; i < num_new_tokens.size(); ++i) {
      if (i < requests_.size()) batch[i] = requests_[i];
      prefix_lens.push_back(batch[i].seqlen());
      seqlens.push_back(batch[i].seqlen() + num_new_tokens[i]);
      last_slots.push_back(batch[i].last());
      num_new += num_new_tokens[i];
      needed += ceil_div(seqlens[i], page_size()) - ceil_div(prefix_lens[i], page_size());
    }
    std::vector<TokenSlot> out(static_cast<size_t>(num_new));
    const int free_before = allocator_->num_free_pages();
    const bool done = allocator_->alloc_extend(prefix_lens, seqlens, last_slots, out);
    RC_ASSERT(done == (needed <= free_before));
    RC_ASSERT(allocator_->num_free_pages() == free_before - (done ? needed : 0));
    if (!done) return;
    auto next = out.begin();
    for (size_t i = 0; i < num_new_tokens.size(); ++i) {
      batch[i].slots.insert(batch[i].slots.end(), next, next + num_new_tokens[i]);
      next += num_new_tokens[i];
    }
    requests_.resize(std::max(requests_.size(), batch.size()));
    std::move(batch.begin(), batch.end(), requests_.begin());
    std::erase_if(requests_, [](const ModelRequest& request) { return request.slots.empty(); });
  }

  void decode() {
    std::vector<int32_t> seqlens;
    std::vector<TokenSlot> last_slots;
    int needed = 0;
    for (const ModelRequest& request : requests_) {
      seqlens.push_back(request.seqlen() + 1);
      last_slots.push_back(request.last());
      needed += request.seqlen() % page_size() == 0;
    }
    std::vector<TokenSlot> out(requests_.size());
    const int free_before = allocator_->num_free_pages();
    const bool done = allocator_->alloc_decode(seqlens, last_slots, out);
    RC_ASSERT(done == (needed <= free_before));
    RC_ASSERT(allocator_->num_free_pages() == free_before - (done ? needed : 0));
    if (!done) return;
    for (size_t i = 0; i < requests_.size(); ++i) requests_[i].slots.push_back(out[i]);
  }

  // Ends requests in one call with their slots in any order; one slot of a page is enough to free it.
  void end(const std::vector<int>& request_idxs, bool one_slot_per_page) {
    std::vector<TokenSlot> slots;
    for (const int i : request_idxs)
      for (const TokenSlot slot : requests_[static_cast<size_t>(i)].slots)
        if (!one_slot_per_page || slot.value % page_size() == 0) slots.push_back(slot);
    for (size_t i = slots.size(); i > 1; --i)
      std::swap(slots[i - 1], slots[static_cast<size_t>(number_below(static_cast<int>(i)))]);
    allocator_->free(slots);
    std::vector<ModelRequest> left;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (std::ranges::count(request_idxs, static_cast<int>(i)) == 0) left.push_back(requests_[i]);
    requests_ = std::move(left);
  }

  // Frees all allocated slots together with a slot that is not allocated, which must have no effect.
  void free_with_invalid_slot(int32_t bad_slot) {
    std::vector<TokenSlot> slots;
    for (const ModelRequest& request : requests_)
      slots.insert(slots.end(), request.slots.begin(), request.slots.end());
    for (const TokenSlot slot : slots)
      if (slot.value / page_size() == bad_slot / page_size()) return;  // in an allocated page, so valid
    slots.insert(slots.begin() + number_below(static_cast<int>(slots.size()) + 1), TokenSlot(bad_slot));
    RC_ASSERT_THROWS_AS(allocator_->free(slots), Error);
  }

  // Grows a request from a slot that is not its last.
  void extend_from(int request_idx, int32_t bad_slot) {
    const ModelRequest& request = requests_[static_cast<size_t>(request_idx)];
    if (bad_slot % page_size() == request.last().value % page_size()) return;  // cannot be detected
    const std::vector<int32_t> before{request.seqlen()}, after{request.seqlen() + 1};
    const std::vector<TokenSlot> last{TokenSlot(bad_slot)};
    std::vector<TokenSlot> out(1);
    RC_ASSERT_THROWS_AS((void)allocator_->alloc_extend(before, after, last, out), Error);
    RC_ASSERT_THROWS_AS((void)allocator_->alloc_decode(after, last, out), Error);
  }

  void check() const {
    allocator_->check_conservation();
    std::unordered_set<TokenSlot> slots;
    std::unordered_set<int32_t> pages;
    for (const ModelRequest& request : requests_) {
      for (int32_t p = 0; p < request.seqlen(); ++p) {
        const int32_t slot = request.slots[static_cast<size_t>(p)].value;
        RC_ASSERT(slot >= page_size());  // not in the padding page
        RC_ASSERT(slot < allocator_->num_total_slots() + page_size());
        RC_ASSERT(slots.insert(TokenSlot(slot)).second);  // each slot is allocated once
        RC_ASSERT(slot % page_size() == p % page_size());
        if (p % page_size() == 0)
          RC_ASSERT(pages.insert(slot / page_size()).second);  // each page belongs to one request
        else
          RC_ASSERT(slot == request.slots[static_cast<size_t>(p) - 1].value + 1);
      }
    }
    RC_ASSERT(allocator_->num_used_slots() == static_cast<int>(pages.size()) * page_size());
    RC_ASSERT(allocator_->num_free_slots() + allocator_->num_used_slots() == allocator_->num_total_slots());
  }

 private:
  int page_size() const { return allocator_->page_size(); }

  std::unique_ptr<SlotAllocator> allocator_;
  std::vector<ModelRequest> requests_;
};

std::vector<int> random_subset(int count) {
  std::vector<int> chosen;
  for (int i = 0; i < count; ++i)
    if (number_below(3) == 0) chosen.push_back(i);
  return chosen;
}

RC_GTEST_PROP(AllocatorProperty, ConservesPagesOverRandomBatches, ()) {
  const int page_size = *rc::gen::element(1, 2, 4, 16, 64);
  Model model(page_size, *rc::gen::inRange(2, 40));
  const int num_slots = model.allocator().num_total_slots() + page_size;
  const int num_steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < num_steps; ++step) {
    switch (number_below(6)) {
      case 0:
        model.extend(*rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 3 * page_size + 2)));
        break;
      case 1:
      case 2:
        model.decode();
        break;
      case 3:
        model.end(random_subset(model.num_requests()), number_below(2) == 0);
        break;
      case 4:
        model.free_with_invalid_slot(*rc::gen::inRange(-1, num_slots + 2));
        break;
      case 5:
        if (model.num_requests() > 0)
          model.extend_from(number_below(model.num_requests()), *rc::gen::inRange(-1, num_slots + 2));
        break;
    }
    model.check();
  }
  while (model.num_requests() > 0) model.end({0}, false);
  model.check();
  RC_ASSERT(model.allocator().num_used_slots() == 0);
}

}  // namespace
}  // namespace attend
