// CacheGroup: host bookkeeping for layers that share cache allocation.
//
// All groups of a model share request rows and token slots. The first group of a list allocates the token
// slots (make_paged_group). The other groups derive their storage from the token slots, or have one state per
// row. Each group has storage for every row, so begin() does not fail.
//
// A row begins after a cached prefix, which may be empty. It grows by the tokens of a step before the step is
// launched, and advances when they are computed. Rejected drafts are rewound. When the row is released, its
// own pages become free.
//
// Ownership in the prefix cache: the cache owns pages of token slots. A group stores the data that it needs
// to resume at a position under the id of the page that ends there: a window page for each page of the
// window, or one snapshot of a recurrent state. So a snapshot belongs to the tree node that owns its page. It
// stays with the page when the node is split, and forget() frees it when the page is evicted. A group may
// drop it earlier to free memory; match() then returns a shorter prefix. Tiers below the pool copy these data
// (tier/cache_tiers.h).
//
// Two groups that the interface is made for:
//   - Recurrent state: a live state for each row and a pool of snapshots. match() returns the deepest page
//     with a snapshot; begin() starts from it, or from zero. Nothing is copied: the first step reads the
//     snapshot instead of the row's state. grow() chooses the positions of the coming step at which the
//     kernel saves snapshots: where the prompt leaves what is cached (the fork), and before the end of the
//     prompt. grid() is the kernel's chunk size, so that steps and snapshots end at its multiples and a
//     restored snapshot gives the same bits. snapshot() assigns accepted snapshots to pages. rewind() drops
//     the snapshots of rejected drafts. It has no state to restore: a step with drafts leaves the row's state
//     unchanged, and the next launch steps it through the accepted tokens.
//   - Cross attention: K/V of one encoder input per row, written before the row's first step. The salt of the
//     prefix cache contains the input's hash, so match() returns the whole prefix. grow(), advance() and
//     rewind() do nothing, and release() frees the row's K/V.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/allocator.h"
#include "attend/kv/cache_spec.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/state/state_slots.h"
#include "attend/kv/tier/page_data.h"
#include "attend/kv/window/swa_slots.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Request row in use, for CacheGroup::check().
struct CachedRow {
  RequestRow row;
  int num_tokens = 0;    // tokens with slots
  int num_computed = 0;  // computed tokens, at most num_tokens
};

// Tokens that a row grows by, for CacheGroup::grow().
struct NewTokens {
  // True for a chunk of a prompt, or of a prompt and an answer that are computed again after a preemption.
  // False for the last sampled token and drafts after it.
  bool is_prompt = false;
  // If is_prompt: number of tokens that chunks compute before the next token is sampled. A request with the
  // same tokens resumes before the last one at the latest, because it needs the logits of that token.
  int prompt_end = 0;
};

// Not thread-safe: the engine's owner thread calls it. Arguments that no correct engine passes throw
// Error(kInternal).
class CacheGroup {
 public:
  virtual ~CacheGroup() = default;

  // Number of first pages of a cached prefix that a row can begin after: at most prefix.size().
  virtual int match(View<const PageId> prefix) const = 0;
  // Returns whether a row in use can call begin() again after any additional cached pages.
  virtual bool can_skip() const = 0;
  // Granularity of chunks of a prompt, at least 1. A chunk ends at a common multiple of all groups' grids, at
  // the end of its prompt, or anywhere if the step's token budget is smaller than that.
  virtual int grid() const = 0;
  // Starts the row after `pages`, which the prefix cache owns. pages[0] is page `first_page` of the row: 0
  // for a new row, any page if can_skip(). `pages` is empty or accepted by match(). `num_found`: number of
  // pages from `first_page` on that the prefix cache has for the row's tokens, at least pages.size(). If it
  // is larger, some group could not resume at the fork, the end of page first_page + num_found. The row then
  // computes these tokens again, and a group can save its state at the fork for other requests.
  virtual void begin(RequestRow row, int first_page, View<const PageId> pages, int num_found) = 0;

  // Number of cached pages to evict before rows can grow by `num_new_pages` pages; nullopt: eviction cannot
  // free enough pages.
  virtual std::optional<int> pages_to_evict(int num_new_pages) const = 0;
  // Grows the row from `num_before` tokens to `num_after`; requires that pages_to_evict() is 0. Called before
  // the step that computes the new tokens, unless the row already has their slots.
  virtual void grow(RequestRow row, int num_before, int num_after, const NewTokens& tokens) = 0;
  // Sets the number of tokens that are computed or will be computed by steps in flight. Called after each
  // step.
  virtual void advance(RequestRow row, int num_computed) = 0;
  // Shrinks the row from `num_before` tokens to `num_after`:
  //   - to num_computed of the last advance(): the removed tokens are computed drafts that were rejected;
  //   - to a larger number, between grow() and the launch of the step: the removed tokens were not computed,
  //     because their slots were reserved for drafts that were not made.
  // The first group of a list is called last, since it clears the row's entries in ReqToTokenPool. A call of
  // forget() follows for pages without tokens.
  virtual void rewind(RequestRow row, int num_before, int num_after) = 0;

  // The prefix cache now owns the whole pages of the row's first `num_tokens` tokens, which are computed.
  // `num_tokens` is at most num_computed of the last advance(); it is smaller if a request ended before its
  // last token.
  virtual void snapshot(RequestRow row, int num_tokens) = 0;
  // Replaces the row's pages `from`, which start at page `first_page`, by `to`: the prefix cache has pages
  // with the same tokens. A call of forget(from) follows.
  virtual void replace(RequestRow row, int first_page, View<const PageId> from, View<const PageId> to) = 0;

  // Ends the row of `num_tokens` tokens. Its entries in ReqToTokenPool are still valid. A call of forget()
  // follows for pages that the prefix cache does not own.
  virtual void release(RequestRow row, int num_tokens) = 0;
  // Frees pages that neither a row nor the prefix cache uses. The first group of a list is called last.
  virtual void forget(View<const PageId> pages) = 0;
  // Frees everything, regardless of its state.
  virtual void reset() = 0;

  // Data of cached pages, for tiers below the pool; null: a row can begin after pages without such data.
  virtual PageData* page_data() { return nullptr; }

  // Throws Error(kInternal) unless all storage of the group is free, or used by a row or the prefix cache.
  // `rows`: all rows in use. Reads all data, so it is for tests and debug builds.
  virtual void check(View<const CachedRow> rows) const = 0;
};

// Makes the group of layers that store K and V, or latent rows, at the token slots. It allocates the slots
// and writes them to the rows.
std::unique_ptr<CacheGroup> make_paged_group(ReqToTokenPool& rows, SlotAllocator& slots);

// Makes the group of sliding-window layers: it stores K and V of the tokens that the next query of each row
// attends to, in window pages. `window_left`: the widest window of the group's layers, inclusive. A row
// references the window pages of its window. Earlier ones are reused when pages are needed; until then, a row
// can begin after a cached prefix that still has the pages of its window.
std::unique_ptr<CacheGroup> make_window_group(const ReqToTokenPool& rows, SwaSlots& window_slots,
                                              int window_left);

// Positions of snapshots, in tokens. All are multiples of the page size and of the grid.
struct StateGroupOptions {
  int page_size = 1;
  int grid = 1;             // chunks of prompts end at its multiples
  int interval = 1;         // a prompt's states at its multiples are saved
  int answer_interval = 1;  // the last state of an answer at its multiples is saved
};

// Makes the group of layers with recurrent states: one state per row, and snapshots of positions. It saves
// the last state at which the same prompt can resume, the state at the fork where a prompt leaves what is
// cached, and those at intervals. Snapshots that a page owns are dropped in the order of last use.
std::unique_ptr<CacheGroup> make_state_group(const ReqToTokenPool& rows, StateSlots& slots,
                                             const StateGroupOptions& options);

// Slots that groups other than the first one allocate.
struct GroupSlots {
  SwaSlots* window =
      nullptr;  // slots of a pool with a window half; null: sliding-window layers keep all tokens
  StateSlots* states = nullptr;  // null: the model has no recurrent states
  StateGroupOptions state_options = {};
};

// Makes the groups of a model's layers.
std::vector<std::unique_ptr<CacheGroup>> make_cache_groups(std::span<const CacheSpec> caches,
                                                           ReqToTokenPool& rows, SlotAllocator& slots,
                                                           const GroupSlots& group_slots = {});

}  // namespace attend
