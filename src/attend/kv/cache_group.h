// CacheGroup: host bookkeeping of layers whose cache is allocated together.
//
// All groups of a model share request rows and token slots. The first group of a list allocates the token
// slots (make_paged_group); the others derive their storage from them, or keep one state for each row. Every
// group has room for every row, so begin() does not fail.
//
// A row begins after a cached prefix, possibly an empty one. It grows by the tokens of a step before the step
// is launched, and advances when they are computed. Drafts that are rejected are rewound. When the row is
// released its own pages are free.
//
// Ownership of what is kept for the prefix cache: the cache owns pages of token slots, and a group keeps what
// it needs to resume there under the id of the page that ends at that position: a window page for each page
// of the window, or one snapshot of a recurrent state. So a snapshot belongs to the tree node that owns its
// page. It stays with the page when the node splits, and forget() frees it when the page is evicted. A group
// that is short of room may drop it earlier: match() then returns a shorter prefix.
//
// Two groups that the interface is made for:
//   - Recurrent state: a live state for each row and a pool of snapshots. match() returns the deepest page
//     with a snapshot; begin() copies it to the row, or starts from zero. grow() chooses the positions of the
//     coming step at which the kernel saves snapshots: where the prompt leaves what is cached (the fork), and
//     before the end of the prompt. grid() is the kernel's chunk, so that steps and snapshots end on it and a
//     restored snapshot gives the same bits. snapshot() gives those that are accepted to their pages.
//     rewind() restores the last committed state, from which the accepted tokens are replayed, and has
//     nothing to restore for tokens that were never computed.
//   - Cross attention: K/V of one encoder input for each row, written before the row's first step. The salt
//   of
//     the prefix cache contains the input's hash, so match() returns the whole prefix; grow(), advance() and
//     rewind() have nothing to do, and release() frees the row's K/V.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/allocator.h"
#include "attend/kv/cache_spec.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/swa_slots.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Request row in use, for CacheGroup::check().
struct CachedRow {
  RequestRow row;
  int num_tokens = 0;    // that the row has slots for
  int num_computed = 0;  // the first of them
};

// Tokens that a row grows by, for CacheGroup::grow().
struct NewTokens {
  // True for a chunk of a prompt, or of a prompt and an answer that are computed again after a preemption.
  // False for the last sampled token and drafts after it.
  bool is_prompt = false;
  // If is_prompt: number of tokens that chunks compute before the next token is sampled. A request with the
  // same tokens resumes before the last of them at the latest, which it computes for its logits.
  int prompt_end = 0;
};

// Not thread-safe: the engine's owner thread calls it. Arguments that no correct engine passes throw
// Error(kInternal).
class CacheGroup {
 public:
  virtual ~CacheGroup() = default;

  // Number of first pages of a cached prefix that a row can begin after: at most prefix.size().
  virtual int match(View<const PageId> prefix) const = 0;
  // Whether a row in use can begin again after more cached pages, whatever they are.
  virtual bool can_skip() const = 0;
  // Positions at multiples of which chunks of a prompt end, at least 1. A chunk ends at a common multiple of
  // all groups' grids, at the end of its prompt, or anywhere if a step has less room than that.
  virtual int grid() const = 0;
  // The row continues after `pages`, which are the prefix cache's. The first of them is page `first_page` of
  // the row: 0 for a new row, any if the group can_skip(). `pages`: empty, or as match() allows.
  // `num_found`: pages from `first_page` on that the prefix cache has of the row's tokens, pages.size() or
  // more. If it is more, some group could not resume at the fork, the end of page first_page + num_found: the
  // row computes these tokens again, and a group can save there what other requests need to resume.
  virtual void begin(RequestRow row, int first_page, View<const PageId> pages, int num_found) = 0;

  // Number of cached pages to evict before rows can grow by `num_new_pages` pages; nullopt: eviction does not
  // make enough room.
  virtual std::optional<int> pages_to_evict(int num_new_pages) const = 0;
  // The row grows from `num_before` tokens to `num_after`, which have room (pages_to_evict() is 0). Before
  // the step that computes them; not for a step whose tokens the row has slots for already.
  virtual void grow(RequestRow row, int num_before, int num_after, const NewTokens& tokens) = 0;
  // The row's first `num_computed` tokens are computed, or will be by the steps in flight. After each step.
  virtual void advance(RequestRow row, int num_computed) = 0;
  // The row shrinks from `num_before` tokens to `num_after`:
  //   - to what advance() said last: the others were computed, and are drafts that were rejected;
  //   - to more than that, between grow() and the launch of the step: the others were never computed, their
  //     slots were reserved for drafts that were not made.
  // Comes to the first group of a list last, which clears the row's entries in ReqToTokenPool. forget()
  // follows for pages without tokens.
  virtual void rewind(RequestRow row, int num_before, int num_after) = 0;

  // The prefix cache owns the whole pages of the row's first `num_tokens` tokens, whose cache is computed.
  // Not above what advance() said last; below it where a request ended before its last token.
  virtual void snapshot(RequestRow row, int num_tokens) = 0;
  // Pages of the row, from page `first_page` on, are `to` instead of `from`: the prefix cache had pages of
  // the same tokens. forget(from) follows.
  virtual void replace(RequestRow row, int first_page, View<const PageId> from, View<const PageId> to) = 0;

  // The row, of `num_tokens` tokens, ends. Its entries in ReqToTokenPool are still there; forget() follows
  // for pages that are not the prefix cache's.
  virtual void release(RequestRow row, int num_tokens) = 0;
  // Frees pages that neither a row nor the prefix cache has. The first group of a list comes last.
  virtual void forget(View<const PageId> pages) = 0;
  // Frees everything, in whatever state it is.
  virtual void reset() = 0;

  // Throws Error(kInternal) unless what the group has is free, a row's or the prefix cache's, with `rows`
  // being all rows in use. Reads everything: for tests and debug builds.
  virtual void check(View<const CachedRow> rows) const = 0;
};

// K and V, or latent rows, of every token at its token slot: allocates the slots and writes them to the rows.
std::unique_ptr<CacheGroup> make_paged_group(ReqToTokenPool& rows, SlotAllocator& slots);

// K and V of the tokens that the next query of each row sees, in window pages. `window_left`: the widest
// window of the group's layers, inclusive. A row holds the window pages of its window. Those before it go to
// others when they are needed; until then a row can begin after a cached prefix whose window is there.
std::unique_ptr<CacheGroup> make_window_group(const ReqToTokenPool& rows, SwaSlots& window_slots,
                                              int window_left);

// Groups of a model's layers. `window_slots`: those of a pool with a half for layers with a window; null:
// such layers keep all tokens.
std::vector<std::unique_ptr<CacheGroup>> make_cache_groups(std::span<const CacheSpec> caches,
                                                           ReqToTokenPool& rows, SlotAllocator& slots,
                                                           SwaSlots* window_slots);

}  // namespace attend
