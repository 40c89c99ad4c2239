#include "attend/kv/tier/disk_tier.h"

#include <csignal>
#include <exception>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"

namespace attend {

DiskTier::DiskTier(std::unique_ptr<PageStore> store, const std::array<size_t, kNumPageDataKinds>& data_bytes,
                   LongestResumable longest_resumable, Needed needed)
    : store_(std::move(store)),
      data_bytes_(data_bytes),
      longest_resumable_(std::move(longest_resumable)),
      needed_(std::move(needed)),
      thread_([this] { loop(); }) {}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_all();
  thread_.join();
}

void DiskTier::search(std::shared_ptr<DiskSearch> search) {
  {
    const std::lock_guard lock(mutex_);
    searches_.push_back(std::move(search));
  }
  added_.notify_one();
}

void DiskTier::wait(const DiskSearch& search, std::chrono::microseconds timeout) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, timeout, [&] { return search.done.load(); });
}

void DiskTier::write(std::vector<StoredPage> run) {
  {
    const std::lock_guard lock(mutex_);
    writes_.push_back(std::move(run));
  }
  added_.notify_one();
}

std::vector<DiskTier::Written> DiskTier::take_written() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

void DiskTier::drain() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return searches_.empty() && writes_.empty() && !clears_ && !busy_; });
}

void DiskTier::clear() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    clears_ = true;
  }
  added_.notify_one();
  drain();
}

void DiskTier::loop() {
  // A file above RLIMIT_FSIZE is an error of the write, not the end of the process.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [&] { return stopping_ || clears_ || !searches_.empty() || !writes_.empty(); });
    if (!searches_.empty()) {
      const std::shared_ptr<DiskSearch> search = std::move(searches_.front());
      searches_.pop_front();
      busy_ = true;
      lock.unlock();
      run_search(*search);
      lock.lock();
      search->done = true;
    } else if (!writes_.empty()) {
      Written written{.run = std::move(writes_.front()), .succeeded = false};
      writes_.pop_front();
      busy_ = true;
      lock.unlock();
      written.succeeded = run_write(written.run);
      lock.lock();
      written_.push_back(std::move(written));
    } else if (clears_) {
      busy_ = true;
      lock.unlock();
      try {
        store_->clear();
      } catch (const std::exception& error) {
        warn("clearing the disk tier", error.what());
      }
      lock.lock();
      clears_ = false;
    } else {
      return;
    }
    busy_ = false;
    ended_.notify_all();
  }
}

void DiskTier::run_search(DiskSearch& search) {
  try {
    size_t num_known = 0;
    while (num_known < search.above.size() && (search.above[num_known] & mask_of(PageDataKind::kTokens)) != 0)
      ++num_known;
    const auto num_above = longest_resumable_(static_cast<int>(num_known), search.above);
    const std::vector<PageDataMask> stored = store_->find(search.prefix, num_known);
    std::vector<PageDataMask> available = search.above;
    for (size_t page = 0; page < stored.size(); ++page) available[page] |= stored[page];
    const int num_pages = longest_resumable_(static_cast<int>(std::max(num_known, stored.size())), available);
    if (num_pages <= num_above) return;
    std::vector<PageRead> reads;
    for (int page = 0; page < num_pages; ++page)
      for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
        const auto each = static_cast<PageDataKind>(kind);
        if ((search.above[static_cast<size_t>(page)] & mask_of(each)) != 0 || !needed_(each, page, num_pages))
          continue;
        search.parts.push_back(
            {.page = page, .kind = each, .data = std::vector<std::byte>(data_bytes_[kind])});
        reads.push_back({.page = search.prefix[static_cast<size_t>(page)],
                         .kind = each,
                         .to = search.parts.back().data.data()});
      }
    search.parts.resize(store_->read(reads));
  } catch (const std::exception& error) {
    search.parts.clear();
    warn("reading from the disk tier", error.what());
  }
}

bool DiskTier::run_write(const std::vector<StoredPage>& run) {
  try {
    store_->write(run);
    return true;
  } catch (const std::exception& error) {
    warn("writing to the disk tier", error.what());
    return false;
  }
}

// At most one warning in ten seconds: a full disk fails every write.
void DiskTier::warn(std::string_view what, std::string_view reason) {
  ++num_failures_;
  const auto now = std::chrono::steady_clock::now();
  if (num_failures_ > 1 && now - last_warning_ < std::chrono::seconds(10)) return;
  last_warning_ = now;
  try_log_warning(what, ": ", reason, " (failure ", num_failures_.load(), ")");
}

}  // namespace attend
