#include "attend/kv/tier/cache_tiers.h"

#include <algorithm>
#include <ranges>

#include "attend/base/error.h"

namespace attend {

std::string_view to_string(HostWritePolicy policy) {
  return policy == HostWritePolicy::kWriteThrough ? "write_through" : "write_back";
}

HostWritePolicy parse_host_write_policy(std::string_view name) {
  for (const auto policy : {HostWritePolicy::kWriteThrough, HostWritePolicy::kWriteBack})
    if (name == to_string(policy)) return policy;
  fail(ErrorCode::kInvalidArgument, "hicache_write_policy ", name, ": expected write_through or write_back");
}

CacheTiers::CacheTiers(Config config, std::vector<PageData*> groups, CacheBytes bytes)
    : identity_(config.identity),
      page_size_(config.page_size),
      write_policy_(config.write_policy),
      groups_(std::move(groups)),
      bytes_(std::move(bytes)),
      host_(config.host) {
  ensure(!groups_.empty() && groups_.front()->kind() == PageDataKind::kTokens,
         "tiers of a prefix cache without tokens");
  for (PageData* group : groups_)
    group->set_before_drop([this, group](PageId page, int index) {
      if (const auto found = device_.find(page); found != device_.end())
        keep(found->second.page, *group, index);
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
                     .pins = HostPins(host_),
                     .search = nullptr};
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
  std::unordered_map<int, const DiskSearch::Part*> from_disk[kNumPageDataKinds];
  if (search.disk) {
    prefix.loading = search.waits = !search.disk->done;
    if (prefix.loading) return prefix;
    for (const DiskSearch::Part& part : search.disk->parts) {
      if (part.page >= std::ssize(hashes)) continue;
      available[static_cast<size_t>(part.page)] |= mask_of(part.kind);
      from_disk[static_cast<size_t>(part.kind)].emplace(part.page, &part);
    }
    count_found();
    num_pages = longest_resumable_of_all(prefix.num_found, available);
  }
  if (num_pages <= num_usable) return prefix;
  prefix.num_pages = num_pages;
  prefix.search = search.disk;
  for (int page = 0; page < num_pages; ++page) {
    const auto i = static_cast<size_t>(page);
    bool is_pinned = false;
    for (const PageData* group : groups_) {
      const PageDataKind kind = group->kind();
      if ((in_pool[i] & mask_of(kind)) != 0 || page < group->first_needed(num_pages)) continue;
      LowerPrefix::Part part{
          .page = page, .kind = kind, .data = host_.find(hashes[i], kind), .from_disk = false};
      if (part.data != nullptr && !std::exchange(is_pinned, true)) prefix.pins.add(hashes[i]);
      if (part.data == nullptr) {
        part.data = from_disk[static_cast<size_t>(kind)].at(page)->data.data();
        part.from_disk = true;
      }
      prefix.parts.push_back(part);
    }
  }
  return prefix;
}

void CacheTiers::wait(const TierSearch& search, std::chrono::microseconds timeout) {
  if (disk_ && search.disk) disk_->wait(*search.disk, timeout);
}

void CacheTiers::restore(const LowerPrefix& prefix, View<const PageHash> hashes, View<const PageId> pages) {
  std::array<bool, kNumPageDataKinds> is_full = {};
  int first_restored = static_cast<int>(pages.size());
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
    bytes_[kind].write(*index, part.data);
    if (part.kind != PageDataKind::kTokens) continue;
    first_restored = std::min(first_restored, part.page);
    ++(part.from_disk ? stats_.num_disk_hit_pages : stats_.num_host_hit_pages);
  }
  // Earlier pages may be computed by the coming step.
  for (int page = static_cast<int>(pages.size()); page-- > first_restored;) {
    const auto i = static_cast<size_t>(page);
    name(pages[i], hashes, page);
    if (write_policy_ != HostWritePolicy::kWriteThrough) continue;
    const bool from_disk = !host_.has(hashes[i], PageDataKind::kTokens);
    keep_all(pages[i], hashes[i]);
    if (from_disk) host_.set_stored(hashes[i], true);
  }
}

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
  store(run);
}

void CacheTiers::remove(View<const PageId> pages, bool demotes) {
  std::vector<PageHash> run;  // from its last page to its first
  const auto end_run = [&] {
    std::ranges::reverse(run);
    store(run);
    run.clear();
  };
  PageHash parent;
  for (const PageId page : pages) {
    const auto found = device_.find(page);
    if (found == device_.end()) continue;
    const DevicePage known = found->second;
    if (demotes) {
      keep_all(page, known.page);
      if (!run.empty() && known.page != parent) end_run();
      run.push_back(known.page);
      parent = known.parent;
    }
    device_.erase(found);
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
  bytes_[static_cast<size_t>(kind)].read(index, to);
  if (kind == PageDataKind::kTokens) ++stats_.num_demoted_pages;
}

void CacheTiers::store(const std::vector<PageHash>& run) {
  if (!disk_) return;
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
  if (!disk_) return;
  for (const DiskTier::Written& written : disk_->take_written())
    for (const StoredPage& page : written.run | std::views::reverse) {
      if (!written.succeeded) host_.set_stored(page.page, false);
      host_.unpin(page.page);
    }
}

void CacheTiers::clear() {
  device_.clear();
  if (disk_) disk_->clear();
  update();
  host_.clear();
}

void CacheTiers::reset() {
  device_.clear();
  if (disk_) disk_->drain();
  update();
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
