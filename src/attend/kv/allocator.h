// Allocators of token slots. They conserve: free + in use = total after every operation, checked in debug
// builds.
//
// Slots of one request are handed out so that each page belongs to one request, position p lies at offset
// p % page_size of its page, and pages are filled from their start: what every kernel relies on.
//
// Pages freed last are handed out first, since their memory is the most likely to be in a cache; pages freed
// together are handed out in the order in which they were given back. Pages never used follow in rising
// order.
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

// What the scheduler sees. All arrays of one call have the same number of requests. Arguments that no right
// engine passes (a prefix longer than its request, a last slot at the wrong offset or of a free page, arrays
// of other sizes) throw Error(kInternal) and change nothing.
class SlotAllocator {
 public:
  virtual ~SlotAllocator() = default;

  // Slots for the new tokens of some requests: request i grows from prefix_lens[i] to seqlens[i] tokens;
  // last_slots[i] is the slot of its last token (kNoSlot when the prefix is empty). Fills the rest of the
  // last page first, then new pages. `out` gets sum(seqlens - prefix_lens) slots, request after request.
  // Returns false, changing nothing, when there are too few free pages.
  [[nodiscard]] virtual bool alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                                          View<const TokenSlot> last_slots, View<TokenSlot> out) = 0;
  // One new token each: request i has seqlens[i] tokens with it. `out`: [num_reqs]. Returns false, changing
  // nothing, when there are too few free pages.
  [[nodiscard]] virtual bool alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                                          View<TokenSlot> out) = 0;
  // Gives back every page that holds one of the slots, whole: all tokens of a page end together. Throws
  // Error(kInternal), changing nothing, for a slot outside the pool, in the padding page or in a free page.
  virtual void free(View<const TokenSlot> slots) = 0;
  // Gives back pages. Throws as free(), changing nothing; a page may be given once.
  void free_pages(View<const PageId> pages);
  // All pages are free, whoever had them: for an owner who lost count.
  void reset();

  // Pages that alloc_extend would take: the sum of ceil(seqlen / page_size) - ceil(prefix_len / page_size).
  int64_t pages_needed(View<const int32_t> prefix_lens, View<const int32_t> seqlens) const;

  int page_size() const { return page_size_; }
  int num_free_pages() const { return static_cast<int>(free_pages_.size()); }
  int num_free_slots() const { return num_free_pages() * page_size_; }
  int num_total_slots() const { return (num_pages_ - 1) * page_size_; }  // without the padding page
  int num_used_slots() const { return num_total_slots() - num_free_slots(); }

  // Throws Error(kInternal) unless every page but the padding page is either free, once, or in use.
  void check_conservation() const;

 protected:
  SlotAllocator(int page_size, int num_pages);
  void return_page(PageId page);

  int page_size_, num_pages_;
  std::vector<PageId> free_pages_;  // taken from the back
  std::vector<int32_t> free_idx_;   // [num_pages]: where a page stands in free_pages_; -1: in use
};

// page_size 1 to 256. `num_pages` counts page 0, the padding page, which is never handed out.
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

// Pages of one slot: any free slot follows any other. `num_slots` counts slot 0, the padding slot.
class TokenAllocator : public PagedAllocator {
 public:
  explicit TokenAllocator(int num_slots) : PagedAllocator(1, num_slots) {}
};

// A TokenAllocator for page_size 1, else a PagedAllocator.
std::unique_ptr<SlotAllocator> make_allocator(int page_size, int num_pages);

}  // namespace attend
#pragma GCC visibility pop
