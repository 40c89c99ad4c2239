#include "attend/kv/tier/host_tier.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "attend/kv/tier/page_data.h"

namespace attend {
namespace {

constexpr auto kTokens = PageDataKind::kTokens;
constexpr auto kState = PageDataKind::kState;

PageHash page(int number) { return sha256("page " + std::to_string(number)); }

HostTier small_tier() { return HostTier({.num_cells = {3, 0, 2}, .cell_bytes = {16, 0, 8}}); }

void fill(HostTier& tier, int number, PageDataKind kind) {
  std::byte* const cell = tier.add(page(number), kind);
  ASSERT_NE(cell, nullptr);
  std::memset(cell, number, kind == kTokens ? 16 : 8);
  tier.check();
}

bool holds(const HostTier& tier, int number, PageDataKind kind) {
  const std::byte* const data = tier.find(page(number), kind);
  if (data == nullptr) return false;
  const size_t size = kind == kTokens ? 16 : 8;
  return std::all_of(data, data + size, [&](std::byte each) { return each == std::byte(number); });
}

TEST(HostTier, EvictsTheLeastRecentlyUsedPage) {
  HostTier tier = small_tier();
  for (int number = 1; number <= 3; ++number) fill(tier, number, kTokens);
  tier.touch(page(1));
  fill(tier, 4, kTokens);
  EXPECT_TRUE(holds(tier, 1, kTokens));
  EXPECT_FALSE(tier.has(page(2), kTokens));
  EXPECT_TRUE(holds(tier, 3, kTokens));
  EXPECT_TRUE(holds(tier, 4, kTokens));
}

TEST(HostTier, APageThatLosesItsTokensLosesItsStateToo) {
  HostTier tier = small_tier();
  fill(tier, 1, kTokens);
  fill(tier, 1, kState);
  for (int number = 2; number <= 4; ++number) fill(tier, number, kTokens);
  EXPECT_FALSE(tier.has(page(1), kState));
  EXPECT_EQ(tier.num_free(kState), 2);
}

TEST(HostTier, APageThatLosesItsStateKeepsItsTokens) {
  HostTier tier = small_tier();
  for (int number = 1; number <= 3; ++number) {
    fill(tier, number, kTokens);
    fill(tier, number, kState);
  }
  EXPECT_FALSE(tier.has(page(1), kState));
  EXPECT_TRUE(holds(tier, 1, kTokens));
  EXPECT_TRUE(holds(tier, 2, kState));
}

TEST(HostTier, KeepsPinnedPages) {
  HostTier tier = small_tier();
  for (int number = 1; number <= 3; ++number) {
    fill(tier, number, kTokens);
    tier.pin(page(number));
  }
  EXPECT_EQ(tier.add(page(4), kTokens), nullptr);
  tier.clear();
  EXPECT_TRUE(holds(tier, 2, kTokens));
  tier.unpin(page(2));
  fill(tier, 4, kTokens);
  EXPECT_FALSE(tier.has(page(2), kTokens));
  EXPECT_EQ(tier.num_pinned(kTokens), 2);
}

// Random operations: free, cached and pinned cells always add up, and data are never mixed up.
RC_GTEST_PROP(HostTierProperty, CellsAreConserved, ()) {
  const auto below = [](int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); };
  HostTier tier({.num_cells = {1 + below(6), 0, 1 + below(3)}, .cell_bytes = {16, 0, 8}});
  std::map<int, int> pins;
  for (int i = 0; i < 100; ++i) {
    const int number = 1 + below(9);
    const PageDataKind kind = below(3) == 0 ? kState : kTokens;
    switch (below(5)) {
      case 0:
      case 1:
        if (tier.has(page(number), kind)) break;
        if (std::byte* const cell = tier.add(page(number), kind))
          std::memset(cell, number, kind == kTokens ? 16 : 8);
        else
          RC_ASSERT(tier.num_pinned(kind) == tier.num_total(kind));
        break;
      case 2:
        tier.touch(page(number));
        break;
      case 3:
        if (tier.has(page(number), kTokens)) {
          tier.pin(page(number));
          ++pins[number];
        }
        break;
      case 4:
        if (pins[number] > 0) {
          tier.unpin(page(number));
          --pins[number];
        } else if (below(20) == 0) {
          tier.clear();
        }
        break;
    }
    tier.check();
    for (const PageDataKind each : {kTokens, kState})
      RC_ASSERT(tier.num_free(each) + tier.num_cached(each) + tier.num_pinned(each) == tier.num_total(each));
    for (int each = 1; each < 10; ++each) {
      RC_ASSERT(!tier.has(page(each), kTokens) || holds(tier, each, kTokens));
      RC_ASSERT(!tier.has(page(each), kState) || holds(tier, each, kState));
      RC_ASSERT(pins[each] == 0 || tier.has(page(each), kTokens));
    }
  }
}

// Needs the last `width` pages, or all.
class LastPages final : public PageData {
 public:
  explicit LastPages(int width) : width_(width) {}
  PageDataKind kind() const override { return kTokens; }
  int first_needed(int num_pages) const override { return std::max(0, num_pages - width_); }
  std::optional<int> find(PageId) const override { return std::nullopt; }
  std::optional<int> restore(PageId, int) override { return std::nullopt; }
  void set_before_drop(BeforeDrop) override {}

 private:
  int width_;
};

RC_GTEST_PROP(LongestResumable, IsTheLongestPrefixWithAllNeededPages, ()) {
  const auto below = [](int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); };
  std::vector<bool> available;
  for (int i = below(12); i > 0; --i) available.push_back(below(4) > 0);
  const LastPages data(below(5));
  const auto has = [&](int number) { return available[static_cast<size_t>(number)]; };
  int expected = 0;
  for (int end = 1; end <= std::ssize(available); ++end) {
    bool resumes = true;
    for (int number = data.first_needed(end); number < end; ++number) resumes = resumes && has(number);
    if (resumes) expected = end;
  }
  RC_ASSERT(longest_resumable(data, static_cast<int>(std::ssize(available)), has) == expected);
}

}  // namespace
}  // namespace attend
