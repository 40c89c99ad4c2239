// Times a full prefix cache on one thread: match, insert and evict of runs of 100 pages, and evict of runs of
// one page each, the most expensive case. Prints medians in microseconds per 100 pages, compared with
// comparing the tokens only.
//
//   prefix_cache_bench [runs in the cache]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "attend/kv/prefix_cache.h"

namespace {

using attend::EvictionPolicy;
using attend::PageId;
using attend::PrefixCache;
using attend::PrefixLock;
using attend::View;

constexpr size_t kPages = 100;

double microseconds_now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <class Fn>
double measure_us(const Fn& fn) {
  const double start = microseconds_now();
  fn();
  return microseconds_now() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Runs of tokens, each with its own first page after `num_shared` pages that all runs share.
std::vector<std::vector<int32_t>> make_runs(size_t num_runs, size_t page_size, size_t num_shared) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> token(0, 127'999);
  std::vector<int32_t> shared(num_shared * page_size);
  for (int32_t& value : shared) value = token(random);
  std::vector<std::vector<int32_t>> runs(num_runs, shared);
  for (std::vector<int32_t>& run : runs)
    while (run.size() < kPages * page_size) run.push_back(token(random));
  return runs;
}

void time_page_size(size_t page_size, size_t num_runs) {
  const std::vector<std::vector<int32_t>> runs = make_runs(num_runs, page_size, kPages / 2);
  PrefixCache cache(static_cast<int>(page_size), EvictionPolicy::kLru);
  std::vector<PageId> pages(kPages), duplicates, freed;
  std::vector<double> insert, match, compare, evict, evict_singles;
  freed.reserve(num_runs * kPages);
  const auto insert_run = [&](const std::vector<int32_t>& run) {
    PrefixLock lock = cache.open();
    cache.insert(lock, run, pages, 0, duplicates);
  };
  for (const std::vector<int32_t>& run : runs) insert_run(run);
  // In LRU order, so that evicted runs are inserted next. Half of each run is shared.
  for (int repeat = 0; repeat < 5; ++repeat)
    for (const std::vector<int32_t>& run : runs) {
      freed.clear();
      evict.push_back(2 * measure_us([&] { cache.evict(static_cast<int>(kPages / 2), freed); }));
      insert.push_back(measure_us([&] { insert_run(run); }));
    }
  for (int repeat = 0; repeat < 5; ++repeat)
    for (const std::vector<int32_t>& run : runs) {
      // The matched tokens were just read, like a prompt that was encoded and queued.
      const std::vector<int32_t> copy = run;
      compare.push_back(measure_us([&] {
        volatile int same = std::memcmp(copy.data(), run.data(), copy.size() * sizeof(int32_t));
        (void)same;
      }));
      match.push_back(measure_us([&] {
        PrefixLock lock = cache.open();
        cache.match(lock, copy, pages);
      }));
    }
  cache.evict(cache.num_pages(), freed);
  for (size_t run = 0; run < num_runs * 10; ++run) {
    std::vector<int32_t> page(page_size, static_cast<int32_t>(run));
    PrefixLock lock = cache.open();
    cache.insert(lock, page, View<PageId>(pages).first(1), 0, duplicates);
  }
  while (cache.num_pages() > 0) {
    freed.clear();
    evict_singles.push_back(measure_us([&] { cache.evict(static_cast<int>(kPages), freed); }));
  }
  std::printf(
      "page %3zu: match %.2f (memcmp %.2f), insert %.2f, evict %.2f, evict in runs of one page %.2f\n",
      page_size, median(match), median(compare), median(insert), median(evict), median(evict_singles));
}

}  // namespace

int main(int argc, char** argv) {
  const long num_runs = argc > 1 ? std::atol(argv[1]) : 200;
  if (num_runs < 1) {
    std::fprintf(stderr, "prefix_cache_bench [runs in the cache, at least 1]\n");
    return 1;
  }
  std::printf("microseconds per 100 pages, %ld runs of 100 pages, half of each shared by all\n", num_runs);
  for (const size_t page_size : {1, 16, 64}) time_page_size(page_size, static_cast<size_t>(num_runs));
}
