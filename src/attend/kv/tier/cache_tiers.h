// CacheTiers: tiers of the prefix cache below the pool: host memory and disk.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/cache_tier_stats.h"
#include "attend/kv/tier/disk_tier.h"
#include "attend/kv/tier/host_tier.h"
#include "attend/kv/tier/page_bytes.h"
#include "attend/kv/tier/page_data.h"
#include "attend/kv/tier/page_hash.h"
#include "attend/kv/tier/page_store.h"
#include "attend/kv/tier/page_transfers.h"

namespace attend {

// Keeps pages of a host tier while they are copied.
class HostPins {
 public:
  HostPins() = default;
  explicit HostPins(HostTier& host) : host_(&host) {}
  HostPins(HostPins&& other) noexcept
      : host_(std::exchange(other.host_, nullptr)), pages_(std::move(other.pages_)) {}
  HostPins& operator=(HostPins&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~HostPins() {
    // Pages at the start of a prefix are evicted last.
    while (!pages_.empty()) {
      host_->unpin(pages_.back());
      pages_.pop_back();
    }
  }

  void add(const PageHash& page) {
    pages_.push_back(page);
    host_->pin(page);
  }
  View<const PageHash> pages() const { return pages_; }

 private:
  HostTier* host_ = nullptr;
  std::vector<PageHash> pages_;
};

// Prefix that tiers below the pool can restore.
struct LowerPrefix {
  // Data to copy to the pool, in the order of the pages.
  struct Part {
    int page = 0;
    PageDataKind kind = PageDataKind::kTokens;
    std::byte* data = nullptr;  // in the host tier
    bool from_disk = false;
  };

  // Number of pages that a row can begin after when the parts are restored; 0: not more than without them.
  int num_pages = 0;
  // Number of first pages whose tokens are in some tier.
  int num_found = 0;
  // The disk is being searched: the request should wait.
  bool loading = false;
  std::vector<Part> parts;
  HostPins pins;
};

// Search state of a waiting request.
struct TierSearch {
  std::string salt;              // of the hashes
  std::vector<PageHash> hashes;  // of the request's first pages
  std::shared_ptr<DiskSearch> disk;
  bool disk_searched = false;  // since the request was submitted
  bool waits = false;          // the last find() did not wait for the disk
};

// Pages are identified by the hash of their tokens and all tokens before them. Data of a page that leaves the
// pool stay in the host tier, and restore() copies them to other pages of the pool later. With
// kWriteThrough, pages are copied to the host when they are computed, so that eviction copies only what the
// host tier has dropped since; with kWriteBack, when they are evicted. Pages of the host tier are written to
// the disk, if there is one, as soon as they are in the host tier.
//
// A page is copied only if RequestMemory has called add() for it, which means that it is computed. Copies run
// while the model computes (PageTransfers): a request begins when the copies to its pages have ended
// (num_loaded()).
//
// Belongs to the engine's owner thread.
class CacheTiers {
 public:
  struct Config {
    HostWritePolicy write_policy = HostWritePolicy::kWriteThrough;
    HostTier::Config host;
    int page_size = 1;
    std::unique_ptr<PageStore> store;  // null: no disk tier
    PageHash identity = {};            // as in FileStore::Config
  };
  // `groups`: data of all groups that have some; the first one has the tokens. `bytes`: their storage. Both
  // must outlive this object. `model`: stream of the model. Throws Error(kOutOfMemory) if the host tier does
  // not fit into memory.
  CacheTiers(Config config, std::vector<PageData*> groups, const CacheBytes& bytes, Stream model);
  ~CacheTiers();

  PageHash root(std::string_view salt) const { return hash_root(identity_, salt); }

  // Looks for the pages `hashes` of a request. `on_device`: first ones, which the prefix cache has.
  // `num_usable`: pages that the request can begin after without restoring any.
  LowerPrefix find(View<const PageHash> hashes, View<const PageId> on_device, int num_usable,
                   TierSearch& search);
  // Waits until the disk has been searched, for `timeout` at most.
  void wait(const TierSearch& search, std::chrono::microseconds timeout);
  // Queues copies of the parts to the pool, which keep the prefix's pins. pages[i]: page number i of the
  // prefix, which the prefix cache owns, up to prefix.num_pages. Stops a kind of data when the pool has no
  // storage left for it.
  void restore(LowerPrefix& prefix, View<const PageHash> hashes, View<const PageId> pages);
  // Returns the value of num_loaded() from which on the data of these pages can be read.
  int64_t loading(View<const PageId> pages) const;
  // Number of batches of copies to the pool that have ended.
  int64_t num_loaded();

  // The prefix cache owns these computed pages, which are numbers `first` to first + pages.size() - 1 of a
  // request with these hashes.
  void add(View<const PageHash> hashes, int first, View<const PageId> pages);
  // Call before groups forget pages that leave the prefix cache, the last page of a prefix first. `demotes`:
  // their data may be kept.
  void remove(View<const PageId> pages, bool demotes);
  // Completes copies and writes to the disk that have ended: call it once per step.
  void update();
  // Starts the queued copies: call it before each step of the model.
  void start_copies();
  // Waits until no copy runs, or num_loaded() increases, for `timeout` at most. Returns false if there was no
  // copy.
  bool wait_for_copies(std::chrono::microseconds timeout);

  // Waits for all copies and writes to the disk.
  void complete();
  // Returns whether pages reach the disk only when the pool evicts them: those that are left should be
  // evicted before the end.
  bool stores_at_exit() const { return disk_ && write_policy_ == HostWritePolicy::kWriteBack; }

  // Drops the pages of all tiers, and the files of this model.
  void clear();
  // Drops the pages of the host tier, for recovery from inconsistent bookkeeping.
  void reset();

  CacheTierStats stats() const;
  // Throws Error(kInternal) unless the counts of each tier add up. `cached`: returns whether the prefix cache
  // owns a page.
  template <class IsCached>
  void check(const IsCached& is_cached) const {
    host_.check();
    for (const auto& [page, known] : device_) check_cached(page, is_cached(page));
  }

 private:
  struct DevicePage {
    PageHash page, parent;
  };
  // Batch of copies, and what happens when it has ended.
  struct Copies {
    int64_t batch = 0;
    std::vector<HostPins> pins = {};
    std::vector<std::vector<PageHash>> runs = {};  // of copies to the host: for the disk
  };

  // Records the hash of a page of the pool, which is number `number` of a prefix.
  void name(PageId page, View<const PageHash> hashes, int number);
  static void check_cached(PageId page, bool is_cached);
  int longest_resumable_of_all(int num_pages, const std::vector<PageDataMask>& available) const;
  bool is_needed(PageDataKind kind, int page, int num_pages) const;
  // Adds the data that a search found on the disk to the host tier, unless they are there, and pins their
  // pages. Stops a kind of data when all its cells are pinned.
  void import(const DiskSearch& search, View<const PageHash> hashes, HostPins& pins);
  // Copies data of a page of the pool to the host tier, unless it is there.
  void keep(const PageHash& hash, const PageData& group, int index);
  void keep_all(PageId page, const PageHash& hash);
  // Returns the entry of a batch, which is the last one or a new one.
  static Copies& entry_of(std::deque<Copies>& copies, int64_t batch);
  // Writes the pages, each of which follows the one before it, to the disk, unless they are there. Waits for
  // copies to the host tier.
  void store_when_copied(std::vector<PageHash> run);
  void store(const std::vector<PageHash>& run);
  void store_part(std::vector<StoredPage>& run);

  PageHash identity_;
  int page_size_;
  HostWritePolicy write_policy_;
  std::vector<PageData*> groups_;
  HostTier host_;
  std::deque<Copies> to_host_, to_pool_;           // not ended, in the order of their batches
  std::unordered_map<PageHash, int64_t> filling_;  // last batch that copies data to a page of the host tier
  PageTransfers transfers_;
  std::unordered_map<PageId, DevicePage> device_;  // pages that add() has named
  CacheTierStats stats_;
  std::optional<DiskTier> disk_;
};

}  // namespace attend
