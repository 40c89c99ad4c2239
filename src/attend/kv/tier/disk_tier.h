// DiskTier: the thread that reads from and writes to a PageStore.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "attend/kv/tier/page_store.h"

namespace attend {

// Search for the pages of a prefix that no tier above has.
struct DiskSearch {
  struct Part {
    int page = 0;
    PageDataKind kind = PageDataKind::kTokens;
    std::vector<std::byte> data;
  };

  std::vector<PageHash> prefix;
  // [prefix.size()]: data of each page that tiers above have.
  std::vector<PageDataMask> above;
  // Valid when `done` is true. The data of a shorter prefix if a file could not be read.
  std::vector<Part> parts;
  std::atomic<bool> done = false;
};

// The caller's thread adds jobs; the tier's thread runs them, searches first.
class DiskTier {
 public:
  // `longest_resumable`: see CacheTiers; thread-safe. `data_bytes`: as in FileStore::Config.
  using LongestResumable = std::function<int(int num_pages, const std::vector<PageDataMask>& available)>;
  using Needed = std::function<bool(PageDataKind kind, int page, int num_pages)>;

  // `longest_resumable`: number of pages that a row can begin after, if this data is available. `needed`:
  // whether a row that begins after `num_pages` needs this data. Both are thread-safe.
  DiskTier(std::unique_ptr<PageStore> store, const std::array<size_t, kNumPageDataKinds>& data_bytes,
           LongestResumable longest_resumable, Needed needed);
  // Completes queued writes.
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  void search(std::shared_ptr<DiskSearch> search);
  // Waits until a search is done, for `timeout` at most.
  void wait(const DiskSearch& search, std::chrono::microseconds timeout);

  // Queues a run of pages, whose data must not change until take_written() returns it.
  void write(std::vector<StoredPage> run);
  struct Written {
    std::vector<StoredPage> run;
    bool succeeded = false;
  };
  // Removes and returns the runs that are written, or could not be written.
  std::vector<Written> take_written();
  // Waits until all jobs are done.
  void drain();
  // Removes the pages of this model from the store, after all queued writes.
  void clear();

  PageStoreStats stats() const { return store_->stats(); }
  int64_t num_failures() const { return num_failures_; }

 private:
  void loop();
  void run_search(DiskSearch& search);
  bool run_write(const std::vector<StoredPage>& run);
  void warn(std::string_view what, std::string_view reason);

  std::unique_ptr<PageStore> store_;
  const std::array<size_t, kNumPageDataKinds> data_bytes_;
  const LongestResumable longest_resumable_;
  const Needed needed_;
  mutable std::mutex mutex_;
  std::condition_variable added_, ended_;
  std::deque<std::shared_ptr<DiskSearch>> searches_;
  std::deque<std::vector<StoredPage>> writes_;
  std::vector<Written> written_;
  bool clears_ = false, busy_ = false, stopping_ = false;
  std::atomic<int64_t> num_failures_ = 0;
  std::chrono::steady_clock::time_point last_warning_ = {};
  std::thread thread_;
};

}  // namespace attend
