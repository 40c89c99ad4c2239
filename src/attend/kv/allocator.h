// Allocators of token slots. They conserve: free + in use = total after every operation, checked in debug
// builds.
//
// Slots of one request are handed out so that each page belongs to one request, position p lies at offset
// p % page_size of its page, and pages are filled from their start: what every kernel relies on.
#pragma once

#include <memory>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

namespace attend {

class SlotAllocator {
 public:
  virtual ~SlotAllocator() = default;

  // Slots for the new tokens of some requests: request i grows from prefix_lens[i] to seqlens[i] tokens;
  // last_slots[i] is the slot of its last token (kNoSlot when the prefix is empty). Fills the rest of the
  // last page first, then new pages. `out` gets sum(seqlens - prefix_lens) slots, request after request.
  // Returns false, changing nothing, when there are too few free pages.
  virtual bool alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                            View<const TokenSlot> last_slots, View<TokenSlot> out) = 0;
  // One new token each: request i has seqlens[i] tokens with it. `out`: [num_reqs]. Returns false, changing
  // nothing, when there are too few free pages.
  virtual bool alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                            View<TokenSlot> out) = 0;
  // Gives back every page that holds one of the slots. The whole pages are freed: all tokens of a page end
  // together. Throws Error(kInternal) for a page that is free already, or the padding page.
  virtual void free(View<const TokenSlot> slots) = 0;

  // Pages that alloc_extend would take.
  int pages_needed(View<const int32_t> prefix_lens, View<const int32_t> seqlens) const;

  int page_size() const { return page_size_; }
  int num_free_pages() const { return static_cast<int>(free_pages_.size()); }
  int num_free_slots() const { return num_free_pages() * page_size_; }
  int num_total_slots() const { return (num_pages_ - 1) * page_size_; }  // without the padding page
  int num_used_slots() const { return num_total_slots() - num_free_slots(); }

  // Throws Error(kInternal) unless free and used pages are disjoint and complete.
  void check_conservation() const;

 protected:
  SlotAllocator(int page_size, int num_pages);

  int page_size_, num_pages_;
  std::vector<PageId> free_pages_;  // taken from the back
  std::vector<bool> used_;          // [num_pages]
};

// page_size 1: any free slot. `num_slots` counts slot 0, the padding slot, which is never handed out.
class TokenAllocator : public SlotAllocator {
 public:
  explicit TokenAllocator(int num_slots);
  bool alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                    View<const TokenSlot> last_slots, View<TokenSlot> out) override;
  bool alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                    View<TokenSlot> out) override;
  void free(View<const TokenSlot> slots) override;
};

// page_size 2 to 256 (1 works too). `num_pages` counts page 0, the padding page.
class PagedAllocator : public SlotAllocator {
 public:
  PagedAllocator(int page_size, int num_pages);
  bool alloc_extend(View<const int32_t> prefix_lens, View<const int32_t> seqlens,
                    View<const TokenSlot> last_slots, View<TokenSlot> out) override;
  bool alloc_decode(View<const int32_t> seqlens, View<const TokenSlot> last_slots,
                    View<TokenSlot> out) override;
  void free(View<const TokenSlot> slots) override;
};

// A TokenAllocator for page_size 1, else a PagedAllocator.
std::unique_ptr<SlotAllocator> make_allocator(int page_size, int num_pages);

}  // namespace attend
