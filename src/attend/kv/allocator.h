// Allocators of token slots. Invariant after every operation, checked in debug builds: free + in use = total.
//
// Each page belongs to one request, position p has offset p % page_size in its page, and pages are filled
// from their start. Kernels depend on this.
//
// Pages freed last are allocated first, since their memory is most likely in a cache. Pages freed together
// are allocated in the order in which they were passed. Unused pages follow in ascending order.
//
// Nothing is allocated after construction. Not thread-safe: the engine's owner thread calls it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// Interface that the scheduler uses. All arrays of a call have the same number of requests. Arguments that no
// correct engine passes (a prefix longer than its request, a last slot at the wrong offset or in a free page,
// arrays of other sizes) throw Error(kInternal) and change nothing.
class SlotAllocator {
 public:
  virtual ~SlotAllocator() = default;

  // Allocates slots for new tokens: request i grows from prefix_lens[i] to seqlens[i] tokens; last_slots[i]
  // is the slot of its last token (kNoSlot if the prefix is empty). Fills the rest of the last page first,
  // then new pages. Writes sum(seqlens - prefix_lens) slots to `out`, in request order. Returns false and
  // changes nothing if there are too few free pages.
  [[nodiscard]] virtual bool alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                                          View<const TokenSlot> last_slots, View<TokenSlot> out) = 0;
  // Allocates a slot for one new token per request; seqlens[i] includes it. `out`: [num_reqs]. Returns false
  // and changes nothing if there are too few free pages.
  [[nodiscard]] virtual bool alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                                          View<TokenSlot> out) = 0;
  // Frees each page that contains one of the slots. All tokens of a page are freed together. Throws
  // Error(kInternal) and changes nothing for a slot outside the pool, in the padding page or in a free page.
  virtual void free(View<const TokenSlot> slots) = 0;
  // Allocates whole pages that belong to no request. Returns false and changes nothing if there are too few
  // free pages.
  [[nodiscard]] bool alloc_pages(View<PageId> out);
  // Frees pages, each listed once. Throws the errors of free() and then changes nothing.
  void free_pages(View<const PageId> pages);
  // Frees all pages. For recovery from inconsistent bookkeeping.
  void reset();

  // Number of pages that alloc_extend needs: sum of ceil(seqlen / page_size) - ceil(prefix_len / page_size).
  int64_t pages_needed(View<const int32_t> prefix_lens, View<const int32_t> seqlens) const;

  int page_size() const { return page_size_; }
  int num_free_pages() const { return static_cast<int>(free_pages_.size()); }
  int num_free_slots() const { return num_free_pages() * page_size_; }
  int num_total_slots() const { return (num_pages_ - 1) * page_size_; }  // without the padding page
  int num_used_slots() const { return num_total_slots() - num_free_slots(); }

  // Throws Error(kInternal) unless each page except the padding page is either in use or in the free list
  // once.
  void check_conservation() const;

 protected:
  SlotAllocator(int page_size, int num_pages);
  void return_page(PageId page);

  int page_size_, num_pages_;
  std::vector<PageId> free_pages_;  // allocated from the back
  std::vector<int32_t> free_idx_;   // [num_pages]: index of a page in free_pages_; -1: in use
};

// page_size is 1 to 256. `num_pages` includes page 0, the padding page, which is never allocated.
class PagedAllocator : public SlotAllocator {
 public:
  PagedAllocator(int page_size, int num_pages);
  bool alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                    View<const TokenSlot> last_slots, View<TokenSlot> out) override;
  bool alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                    View<TokenSlot> out) override;
  void free(View<const TokenSlot> slots) override;

 private:
  void check_growth(size_t request, int32_t prefix_len, int32_t seqlen, TokenSlot last) const;
  TokenSlot* grow(int32_t prefix_len, int32_t seqlen, TokenSlot last, TokenSlot* out);
  int32_t allocate_page();
};

// Pages of one slot, so that any free slot can follow any other. `num_slots` includes slot 0, the padding
// slot.
class TokenAllocator : public PagedAllocator {
 public:
  explicit TokenAllocator(int num_slots) : PagedAllocator(1, num_slots) {}
};

// Returns a TokenAllocator for page_size 1, otherwise a PagedAllocator.
std::unique_ptr<SlotAllocator> make_allocator(int page_size, int num_pages);

}  // namespace attend
#pragma GCC visibility pop
