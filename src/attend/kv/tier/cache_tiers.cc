#include "attend/kv/tier/cache_tiers.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <thread>

#include "attend/base/error.h"
#include "attend/base/parallel.h"

namespace attend {

std::string_view to_string(HostWritePolicy policy) {
  return policy == HostWritePolicy::kWriteThrough ? "write_through" : "write_back";
}

HostWritePolicy parse_host_write_policy(std::string_view name) {
  for (const auto policy : {HostWritePolicy::kWriteThrough, HostWritePolicy::kWriteBack})
    if (name == to_string(policy)) return policy;
  fail(ErrorCode::kInvalidArgument, "hicache_write_policy ", name, ": expected write_through or write_back");
}

CacheTiers::CacheTiers(Config config, std::vector<PageData*> groups, const CacheBytes& bytes, Stream model)
    : identity_(config.identity),
      page_size_(config.page_size),
      write_policy_(config.write_policy),
      groups_(std::move(groups)),
      host_(config.host),
      transfers_(bytes, model) {
  ensure(!groups_.empty() && groups_.front()->kind() == PageDataKind::kTokens,
         "tiers of a prefix cache without tokens");
  for (PageData* group : groups_)
    group->set_before_drop([this, group](PageId page, int index) {
      if (const auto found = device_.find(page); found != device_.end())
        keep(found->second.page, *group, index);
      transfers_.reuse(group->kind(), index);
    });
  if (!config.store) return;
  disk_.emplace(
      std::move(config.store), config.host.cell_bytes,
      [this](int num_pages, const std::vector<PageDataMask>& available) {
        return longest_resumable_of_all(num_pages, available);
      },
      [this](PageDataKind kind, int page, int num_pages) { return is_needed(kind, page, num_pages); });
}

CacheTiers::~CacheTiers() {
  for (PageData* group : groups_) group->set_before_drop({});
  try {
    transfers_.drain();
    update();
  } catch (const Error&) {  // the device is lost, and so are its pages
  }
}

// Called on the disk tier's thread too.
int CacheTiers::longest_resumable_of_all(int num_pages, const std::vector<PageDataMask>& available) const {
  // Repeats until no group shortens the prefix: see RequestMemory::num_restorable().
  for (int before = num_pages + 1; num_pages < before;) {
    before = num_pages;
    for (const PageData* group : groups_)
      num_pages = longest_resumable(*group, num_pages, [&](int page) {
        return (available[static_cast<size_t>(page)] & mask_of(group->kind())) != 0;
      });
  }
  return num_pages;
}

bool CacheTiers::is_needed(PageDataKind kind, int page, int num_pages) const {
  return std::ranges::any_of(groups_, [&](const PageData* group) {
    return group->kind() == kind && page >= group->first_needed(num_pages);
  });
}

LowerPrefix CacheTiers::find(View<const PageHash> hashes, View<const PageId> on_device, int num_usable,
                             TierSearch& search) {
  LowerPrefix prefix{.num_pages = 0,
                     .num_found = static_cast<int>(on_device.size()),
                     .loading = false,
                     .parts = {},
                     .pins = HostPins(host_)};
  std::vector<PageDataMask> in_pool(hashes.size(), 0);
  for (size_t page = 0; page < on_device.size(); ++page)
    for (const PageData* group : groups_)
      if (group->find(on_device[page])) in_pool[page] |= mask_of(group->kind());
  std::vector<PageDataMask> available = in_pool;
  for (size_t page = groups_.size() > 1 ? 0 : on_device.size(); page < hashes.size(); ++page) {
    for (const PageData* group : groups_)
      if (host_.has(hashes[page], group->kind())) available[page] |= mask_of(group->kind());
    if ((available[page] & mask_of(PageDataKind::kTokens)) == 0) break;
  }
  const auto count_found = [&] {
    while (prefix.num_found < std::ssize(hashes) &&
           (available[static_cast<size_t>(prefix.num_found)] & mask_of(PageDataKind::kTokens)) != 0)
      ++prefix.num_found;
  };
  count_found();
  int num_pages = longest_resumable_of_all(prefix.num_found, available);
  // The last page first, so that pages at the start of a prefix are evicted last.
  for (const PageHash& page : hashes.first(static_cast<size_t>(prefix.num_found)) | std::views::reverse)
    host_.touch(page);
  if (disk_ && !search.disk_searched && num_pages < std::ssize(hashes)) {
    search.disk_searched = true;
    search.disk = std::make_shared<DiskSearch>();
    search.disk->prefix.assign(hashes.begin(), hashes.end());
    search.disk->above = available;
    disk_->search(search.disk);
  }
  std::vector<PageDataMask> from_disk(hashes.size(), 0);
  if (search.disk) {
    prefix.loading = search.waits = !search.disk->done;
    if (prefix.loading) return prefix;
    import(*search.disk, hashes, prefix.pins);
    for (const DiskSearch::Part& part : search.disk->parts) {
      const auto page = static_cast<size_t>(part.page);
      if (page >= hashes.size() || !host_.has(hashes[page], part.kind)) continue;
      available[page] |= mask_of(part.kind);
      from_disk[page] |= mask_of(part.kind);
    }
    count_found();
    num_pages = longest_resumable_of_all(prefix.num_found, available);
  }
  if (num_pages <= num_usable) return prefix;
  prefix.num_pages = num_pages;
  for (int page = 0; page < num_pages; ++page) {
    const auto i = static_cast<size_t>(page);
    bool is_pinned = false;
    for (const PageData* group : groups_) {
      const PageDataKind kind = group->kind();
      if ((in_pool[i] & mask_of(kind)) != 0 || page < group->first_needed(num_pages)) continue;
      prefix.parts.push_back({.page = page,
                              .kind = kind,
                              .data = host_.find(hashes[i], kind),
                              .from_disk = (from_disk[i] & mask_of(kind)) != 0});
      if (!std::exchange(is_pinned, true)) prefix.pins.add(hashes[i]);
    }
  }
  return prefix;
}

void CacheTiers::import(const DiskSearch& search, View<const PageHash> hashes, HostPins& pins) {
  // Pages of the prefix are not evicted for each other.
  for (const PageHash& page : hashes)
    if (host_.has_any(page)) pins.add(page);
  struct Import {
    const DiskSearch::Part* part;
    std::byte* to;
  };
  std::vector<Import> imports;
  for (const DiskSearch::Part& part : search.parts) {
    if (part.page >= std::ssize(hashes)) continue;
    const PageHash& page = hashes[static_cast<size_t>(part.page)];
    if (host_.has(page, part.kind)) continue;
    // The disk has all data of a page that no tier above has.
    const bool is_stored = !host_.has_any(page) || host_.is_stored(page);
    std::byte* const to = host_.add(page, part.kind);
    if (to == nullptr) continue;
    host_.set_stored(page, is_stored);
    pins.add(page);
    imports.push_back({&part, to});
  }
  parallel_for(std::ssize(imports), [&](int64_t i, int) {
    const auto& [part, to] = imports[static_cast<size_t>(i)];
    std::memcpy(to, part->data.data(), part->data.size());
  });
}

void CacheTiers::wait(const TierSearch& search, std::chrono::microseconds timeout) {
  if (disk_ && search.disk) disk_->wait(*search.disk, timeout);
}

void CacheTiers::restore(LowerPrefix& prefix, View<const PageHash> hashes, View<const PageId> pages) {
  std::array<bool, kNumPageDataKinds> is_full = {};
  int first_restored = static_cast<int>(pages.size());
  int64_t batch = 0;
  for (const LowerPrefix::Part& part : prefix.parts) {
    const auto kind = static_cast<size_t>(part.kind);
    const auto group = std::ranges::find(groups_, part.kind, &PageData::kind);
    const PageId page = pages[static_cast<size_t>(part.page)];
    // A group may have got the data meanwhile, by a page that another request computed.
    if (is_full[kind] || (part.kind != PageDataKind::kTokens && (*group)->find(page))) continue;
    const int position = (part.page + 1) * page_size_;
    const std::optional<int> index =
        part.kind == PageDataKind::kTokens ? (*group)->find(page) : (*group)->restore(page, position);
    if (!index) {
      is_full[kind] = true;
      continue;
    }
    const auto filling = filling_.find(hashes[static_cast<size_t>(part.page)]);
    batch = transfers_.add(PageTransfers::Direction::kToCache, part.kind, *index, part.data,
                           filling != filling_.end() ? filling->second : 0);
    if (part.kind != PageDataKind::kTokens) continue;
    first_restored = std::min(first_restored, part.page);
    ++(part.from_disk ? stats_.num_disk_hit_pages : stats_.num_host_hit_pages);
  }
  if (batch > 0) entry_of(to_pool_, batch).pins.push_back(std::move(prefix.pins));
  // Earlier pages may be computed by the coming step.
  for (int page = static_cast<int>(pages.size()); page-- > first_restored;) {
    const auto i = static_cast<size_t>(page);
    name(pages[i], hashes, page);
    if (write_policy_ == HostWritePolicy::kWriteThrough) keep_all(pages[i], hashes[i]);
  }
}

int64_t CacheTiers::loading(View<const PageId> pages) const {
  if (to_pool_.empty()) return 0;
  int64_t last = 0;
  for (const PageId page : pages)
    for (const PageData* group : groups_)
      if (const std::optional<int> index = group->find(page))
        last = std::max(last, transfers_.batch_of(PageTransfers::Direction::kToCache, group->kind(), *index));
  return last;
}

int64_t CacheTiers::num_loaded() { return transfers_.num_ended(PageTransfers::Direction::kToCache); }

void CacheTiers::name(PageId page, View<const PageHash> hashes, int number) {
  const auto i = static_cast<size_t>(number);
  device_[page] = {.page = hashes[i], .parent = number > 0 ? hashes[i - 1] : PageHash()};
}

void CacheTiers::add(View<const PageHash> hashes, int first, View<const PageId> pages) {
  std::vector<PageHash> run;
  for (size_t i = 0; i < pages.size(); ++i) {
    const int number = first + static_cast<int>(i);
    name(pages[i], hashes, number);
    run.push_back(hashes[static_cast<size_t>(number)]);
  }
  if (write_policy_ != HostWritePolicy::kWriteThrough) return;
  // The last page first: pages at the start of a prefix are then evicted last.
  for (size_t i = pages.size(); i-- > 0;) keep_all(pages[i], run[i]);
  store_when_copied(std::move(run));
}

void CacheTiers::remove(View<const PageId> pages, bool demotes) {
  std::vector<PageHash> run;  // from its last page to its first
  const auto end_run = [&] {
    std::ranges::reverse(run);
    store_when_copied(std::exchange(run, {}));
  };
  PageHash parent;
  for (const PageId page : pages) {
    if (const auto found = device_.find(page); found != device_.end()) {
      const DevicePage known = found->second;
      if (demotes) {
        keep_all(page, known.page);
        if (!run.empty() && known.page != parent) end_run();
        run.push_back(known.page);
        parent = known.parent;
      }
      device_.erase(found);
    }
    for (const PageData* group : groups_)
      if (const std::optional<int> index = group->find(page)) transfers_.reuse(group->kind(), *index);
  }
  end_run();
}

void CacheTiers::keep_all(PageId page, const PageHash& hash) {
  for (const PageData* group : groups_)
    if (const std::optional<int> index = group->find(page)) keep(hash, *group, *index);
}

void CacheTiers::keep(const PageHash& hash, const PageData& group, int index) {
  const PageDataKind kind = group.kind();
  if (host_.num_total(kind) == 0) return;
  if (host_.has(hash, kind)) {
    host_.touch(hash);
    return;
  }
  std::byte* to = host_.add(hash, kind);
  if (to == nullptr) {
    update();  // some writes may be done
    to = host_.add(hash, kind);
  }
  if (to == nullptr) {
    ++stats_.num_dropped_pages;
    return;
  }
  const int64_t batch = transfers_.add(PageTransfers::Direction::kToHost, kind, index, to);
  Copies& copies = entry_of(to_host_, batch);
  if (copies.pins.empty()) copies.pins.emplace_back(host_);
  copies.pins.front().add(hash);
  filling_[hash] = batch;
  if (kind == PageDataKind::kTokens) ++stats_.num_demoted_pages;
}

CacheTiers::Copies& CacheTiers::entry_of(std::deque<Copies>& copies, int64_t batch) {
  if (copies.empty() || copies.back().batch != batch) copies.push_back({.batch = batch});
  return copies.back();
}

void CacheTiers::store_when_copied(std::vector<PageHash> run) {
  if (!disk_ || run.empty()) return;
  if (to_host_.empty())
    store(run);
  else
    to_host_.back().runs.push_back(std::move(run));
}

void CacheTiers::store(const std::vector<PageHash>& run) {
  std::vector<StoredPage> part;
  for (const PageHash& page : run) {
    if (host_.has(page, PageDataKind::kTokens) && !host_.is_stored(page)) {
      StoredPage stored{.page = page, .data = {}};
      for (const PageData* group : groups_)
        stored.data[static_cast<size_t>(group->kind())] = host_.find(page, group->kind());
      part.push_back(stored);
    } else {
      store_part(part);
    }
  }
  store_part(part);
}

void CacheTiers::store_part(std::vector<StoredPage>& run) {
  if (run.empty()) return;
  for (const StoredPage& page : run) {
    host_.pin(page.page);
    host_.set_stored(page.page, true);
  }
  disk_->write(std::exchange(run, {}));
}

void CacheTiers::update() {
  const int64_t num_loaded = this->num_loaded();
  while (!to_pool_.empty() && to_pool_.front().batch <= num_loaded) to_pool_.pop_front();
  const int64_t num_kept = transfers_.num_ended(PageTransfers::Direction::kToHost);
  while (!to_host_.empty() && to_host_.front().batch <= num_kept) {
    const Copies copies = std::move(to_host_.front());
    to_host_.pop_front();
    for (const HostPins& pins : copies.pins)
      for (const PageHash& page : pins.pages())
        if (const auto found = filling_.find(page); found != filling_.end() && found->second == copies.batch)
          filling_.erase(found);
    // Other data of these pages may have been added since, and not be copied yet.
    for (const std::vector<PageHash>& run : copies.runs)
      if (std::ranges::any_of(run, [&](const PageHash& page) { return filling_.contains(page); }))
        to_host_.back().runs.push_back(run);
      else
        store(run);
  }
  if (!disk_) return;
  for (const DiskTier::Written& written : disk_->take_written())
    for (const StoredPage& page : written.run | std::views::reverse) {
      if (!written.succeeded) host_.set_stored(page.page, false);
      host_.unpin(page.page);
    }
}

void CacheTiers::start_copies() { transfers_.start(); }

bool CacheTiers::wait_for_copies(std::chrono::microseconds timeout) {
  constexpr std::chrono::microseconds kInterval{50};
  if (to_host_.empty() && to_pool_.empty()) return false;
  const auto end = std::chrono::steady_clock::now() + timeout;
  const int64_t num_before = num_loaded();
  for (update(); !(to_host_.empty() && to_pool_.empty()); update()) {
    if (num_loaded() > num_before || std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(kInterval);
  }
  return true;
}

void CacheTiers::complete() {
  transfers_.drain();
  update();
  if (disk_) disk_->drain();
  update();
}

void CacheTiers::clear() {
  device_.clear();
  complete();
  if (disk_) disk_->clear();
  host_.clear();
}

void CacheTiers::reset() {
  device_.clear();
  complete();
  host_.clear();
}

CacheTierStats CacheTiers::stats() const {
  CacheTierStats stats = stats_;
  constexpr auto kTokens = PageDataKind::kTokens;
  stats.num_host_pages = host_.num_total(kTokens);
  stats.num_host_cached_pages = host_.num_cached(kTokens);
  stats.num_host_pinned_pages = host_.num_pinned(kTokens);
  stats.num_host_free_pages = host_.num_free(kTokens);
  if (!disk_) return stats;
  const PageStoreStats disk = disk_->stats();
  stats.num_disk_bytes = disk.num_bytes;
  stats.max_disk_bytes = disk.max_bytes;
  stats.num_disk_failures = disk_->num_failures();
  stats.num_rejected_files = disk.num_rejected_files;
  return stats;
}

void CacheTiers::check_cached(PageId page, bool is_cached) {
  ensure(is_cached, "tiers: page ", page, " is not in the prefix cache");
}

}  // namespace attend
