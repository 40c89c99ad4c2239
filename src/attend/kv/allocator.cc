#include "attend/kv/allocator.h"

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

#ifdef NDEBUG
constexpr bool kCheckEveryOperation = false;
#else
constexpr bool kCheckEveryOperation = true;
#endif

constexpr int32_t kInUse = -1;

}  // namespace

SlotAllocator::SlotAllocator(int page_size, int num_pages) : page_size_(page_size), num_pages_(num_pages) {
  check_pages(page_size, num_pages, "allocator");
  free_pages_.reserve(static_cast<size_t>(num_pages) - 1);
  reset();
}

void SlotAllocator::reset() {
  free_idx_.assign(static_cast<size_t>(num_pages_), kInUse);
  free_pages_.clear();
  for (int32_t page = num_pages_ - 1; page > 0; --page) {
    free_idx_[static_cast<size_t>(page)] = static_cast<int32_t>(free_pages_.size());
    free_pages_.emplace_back(page);
  }
}

void SlotAllocator::free_pages(View<const PageId> pages) {
  for (const PageId page : pages) {
    ensure(page.value > 0 && page.value < num_pages_, "free: page ", page, ": pages are 1 to ",
           num_pages_ - 1, ", page 0 is the padding page");
    ensure(free_idx_[static_cast<size_t>(page.value)] == kInUse, "free: page ", page, " is free already");
  }
  for (size_t i = pages.size(); i-- > 0;) return_page(pages[i]);
  if constexpr (kCheckEveryOperation) check_conservation();
}

bool SlotAllocator::alloc_pages(View<PageId> out) {
  if (out.size() > free_pages_.size()) return false;
  for (PageId& page : out) {
    page = free_pages_.back();
    free_pages_.pop_back();
    free_idx_[static_cast<size_t>(page.value)] = kInUse;
  }
  if constexpr (kCheckEveryOperation) check_conservation();
  return true;
}

int64_t SlotAllocator::pages_needed(View<const int32_t> prefix_lens, View<const int32_t> seqlens) const {
  int64_t needed = 0;
  for (size_t i = 0; i < seqlens.size(); ++i)
    needed += ceil_div(seqlens[i], page_size_) - ceil_div(prefix_lens[i], page_size_);
  return needed;
}

void SlotAllocator::check_conservation() const {
  // Each page has one free_idx_, so it cannot occur twice in free_pages_ if all entries match.
  for (size_t i = 0; i < free_pages_.size(); ++i) {
    const PageId page = free_pages_[i];
    ensure(page.value > 0 && page.value < num_pages_, "allocator: page ", page, " is free, pages are 1 to ",
           num_pages_ - 1);
    ensure(free_idx_[static_cast<size_t>(page.value)] == static_cast<int32_t>(i), "allocator: page ", page,
           " is free and in use, or free twice");
  }
  size_t num_in_use = 0;
  for (size_t page = 1; page < free_idx_.size(); ++page) num_in_use += free_idx_[page] == kInUse;
  ensure(num_in_use + free_pages_.size() + 1 == static_cast<size_t>(num_pages_), "allocator: ", num_in_use,
         " pages in use and ", free_pages_.size(), " free are not all ", num_pages_ - 1);
}

// Pages that are already free stay free.
void SlotAllocator::return_page(PageId page) {
  int32_t& free_idx = free_idx_[static_cast<size_t>(page.value)];
  if (free_idx != kInUse) return;
  free_idx = static_cast<int32_t>(free_pages_.size());
  free_pages_.push_back(page);
}

PagedAllocator::PagedAllocator(int page_size, int num_pages) : SlotAllocator(page_size, num_pages) {}

bool PagedAllocator::alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                                  View<const TokenSlot> last_slots, View<TokenSlot> out) {
  ensure(prefix_lens.size() == seqlens.size() && last_slots.size() == seqlens.size(),
         "alloc_extend: ", prefix_lens.size(), " prefix_lens, ", seqlens.size(), " seqlens, ",
         last_slots.size(), " last_slots");
  int64_t num_new = 0;
  for (size_t i = 0; i < seqlens.size(); ++i) {
    check_growth(i, prefix_lens[i], seqlens[i], last_slots[i]);
    num_new += seqlens[i] - prefix_lens[i];
  }
  ensure(num_new == static_cast<int64_t>(out.size()), "alloc_extend: out of ", out.size(), " slots for ",
         num_new, " new tokens");
  if (pages_needed(prefix_lens, seqlens) > num_free_pages()) return false;
  TokenSlot* next = out.data();
  for (size_t i = 0; i < seqlens.size(); ++i) next = grow(prefix_lens[i], seqlens[i], last_slots[i], next);
  if constexpr (kCheckEveryOperation) check_conservation();
  return true;
}

bool PagedAllocator::alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                                  View<TokenSlot> out) {
  ensure(last_slots.size() == seqlens.size() && out.size() == seqlens.size(),
         "alloc_decode: ", seqlens.size(), " seqlens, ", last_slots.size(), " last_slots, out of ",
         out.size());
  int num_pages = 0;
  for (size_t i = 0; i < seqlens.size(); ++i) {
    check_growth(i, seqlens[i] - 1, seqlens[i], last_slots[i]);
    num_pages += (seqlens[i] - 1) % page_size_ == 0;
  }
  if (num_pages > num_free_pages()) return false;
  TokenSlot* next = out.data();
  for (size_t i = 0; i < seqlens.size(); ++i) next = grow(seqlens[i] - 1, seqlens[i], last_slots[i], next);
  if constexpr (kCheckEveryOperation) check_conservation();
  return true;
}

void PagedAllocator::free(View<const TokenSlot> slots) {
  for (TokenSlot slot : slots) {
    const int32_t page = slot.value / page_size_;
    ensure(slot.value >= page_size_ && page < num_pages_, "free: slot ", slot, ": slots are ", page_size_,
           " to ", num_pages_ * page_size_ - 1, ", those before are the padding page");
    ensure(free_idx_[static_cast<size_t>(page)] == kInUse, "free: slot ", slot, ": page ", page,
           " is free already");
  }
  // In reverse order, so that the first page is allocated first. The page is already free for its other
  // slots.
  for (size_t i = slots.size(); i-- > 0;) return_page(PageId(slots[i].value / page_size_));
  if constexpr (kCheckEveryOperation) check_conservation();
}

void PagedAllocator::check_growth(size_t request, int32_t prefix_len, int32_t seqlen, TokenSlot last) const {
  ensure(prefix_len >= 0 && prefix_len <= seqlen, "allocator: request ", request, " grows from ", prefix_len,
         " to ", seqlen, " tokens");
  if (prefix_len == 0) {
    ensure(last == kNoSlot, "allocator: request ", request, " has no tokens but last slot ", last);
    return;
  }
  const int32_t page = last.value / page_size_;
  ensure(last.value >= page_size_ && page < num_pages_ && free_idx_[static_cast<size_t>(page)] == kInUse,
         "allocator: last slot ", last, " of request ", request, " is not in use");
  ensure((last.value + 1) % page_size_ == prefix_len % page_size_, "allocator: last slot ", last,
         " of request ", request, " with ", prefix_len, " tokens: offset ", last.value % page_size_,
         " of its page, expected ", (prefix_len - 1) % page_size_);
}

TokenSlot* PagedAllocator::grow(int32_t prefix_len, int32_t seqlen, TokenSlot last, TokenSlot* out) {
  int32_t slot = last.value;
  for (int32_t position = prefix_len; position < seqlen; ++position) {
    slot = position % page_size_ == 0 ? allocate_page() * page_size_ : slot + 1;
    *out++ = TokenSlot(slot);
  }
  return out;
}

int32_t PagedAllocator::allocate_page() {
  const PageId page = free_pages_.back();
  free_pages_.pop_back();
  free_idx_[static_cast<size_t>(page.value)] = kInUse;
  return page.value;
}

std::unique_ptr<SlotAllocator> make_allocator(int page_size, int num_pages) {
  if (page_size == 1) return std::make_unique<TokenAllocator>(num_pages);
  return std::make_unique<PagedAllocator>(page_size, num_pages);
}

}  // namespace attend
