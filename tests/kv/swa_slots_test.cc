#include "attend/kv/window/swa_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "attend/kv/storage/cache_storage_config.h"
#include "attend/kv/window/swa_kv_pool.h"
#include "tests/support/error_message.h"
#include "tests/support/token_slots.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using testing_support::error_message;
using testing_support::make_slots;

std::vector<PageId> pages_of(std::initializer_list<int32_t> values) { return {values.begin(), values.end()}; }

TEST(SwaSlots, TokensOfAPageStayTogetherInTheWindowHalf) {
  SwaSlots swa(4, 8, 5);
  ASSERT_TRUE(swa.map(make_slots({20, 21, 22, 23, 8, 9})));
  EXPECT_EQ(swa.num_referenced_pages(), 2);
  for (const int32_t first : {20, 8})
    for (int32_t i = 1; i < 4; ++i)
      EXPECT_EQ(swa.translate(TokenSlot(first + i)).value, swa.translate(TokenSlot(first)).value + i);
  EXPECT_NE(swa.translate(TokenSlot(20)).value, swa.translate(TokenSlot(8)).value);
  // The page of a token that is added later is mapped already.
  ASSERT_TRUE(swa.map(make_slots({10})));
  EXPECT_EQ(swa.num_referenced_pages(), 2);
}

TEST(SwaSlots, UnreferencedWindowPagesStayUntilReused) {
  SwaSlots swa(1, 8, 4);  // three window pages
  ASSERT_TRUE(swa.map(make_slots({1, 2, 3})));
  swa.drop(pages_of({2}));
  swa.drop(pages_of({1}));
  EXPECT_TRUE(swa.is_mapped(PageId(1)) && swa.is_mapped(PageId(2)));
  EXPECT_EQ(swa.num_unused_pages(), 2);
  // The page that has been unused longest is reused first.
  ASSERT_TRUE(swa.map(make_slots({4})));
  EXPECT_FALSE(swa.is_mapped(PageId(2)));
  EXPECT_EQ(swa.translate(TokenSlot(2)), SwaSlot(0));
  EXPECT_TRUE(swa.is_mapped(PageId(1)));
  // A page that is referenced again is no longer available.
  swa.hold(pages_of({1}));
  EXPECT_FALSE(swa.map(make_slots({5})));
  swa.check_conservation();
}

TEST(SwaSlots, MapThatDoesNotFitChangesNothing) {
  SwaSlots swa(1, 8, 4);
  ASSERT_TRUE(swa.map(make_slots({2, 6})));
  swa.drop(pages_of({6}));
  EXPECT_FALSE(swa.map(make_slots({3, 4, 5})));
  EXPECT_TRUE(swa.is_mapped(PageId(6)));
  for (const int32_t page : {3, 4, 5}) EXPECT_FALSE(swa.is_mapped(PageId(page)));
  swa.check_conservation();
  EXPECT_TRUE(swa.map(make_slots({3, 4})));
}

TEST(SwaSlots, RestoredPagesAreUnused) {
  SwaSlots swa(4, 8, 4);  // three window pages
  std::vector<int32_t> reused;
  swa.set_before_reuse([&](PageId page, int window_page) {
    EXPECT_EQ(swa.window_page(page), window_page);
    reused.push_back(page.value);
  });
  int64_t cursor = swa.moved_cursor();
  ASSERT_TRUE(swa.map(make_slots({4, 8})));
  ASSERT_TRUE(swa.restore(PageId(5)));
  EXPECT_EQ(swa.num_unused_pages(), 1);
  swa.check_conservation();
  std::vector<int64_t> moved;
  swa.follow_moved(cursor, [&](int64_t first, int64_t) { moved.push_back(first); });
  EXPECT_THAT(moved, testing::ElementsAre(20));
  EXPECT_TRUE(reused.empty());
  ASSERT_TRUE(swa.restore(PageId(6)));
  EXPECT_THAT(reused, testing::ElementsAre(5));
  EXPECT_FALSE(swa.is_mapped(PageId(5)));
  swa.hold(pages_of({6}));
  EXPECT_FALSE(swa.restore(PageId(7))) << "all window pages are referenced";
  swa.check_conservation();
}

TEST(SwaSlots, ReplacementPageInheritsTheWindowPage) {
  SwaSlots swa(2, 8, 4);
  ASSERT_TRUE(swa.map(make_slots({4, 6})));  // pages 2 and 3
  const SwaSlot before = swa.translate(TokenSlot(4));
  swa.replace(PageId(2), PageId(5));
  EXPECT_EQ(swa.translate(TokenSlot(10)), before);
  EXPECT_FALSE(swa.is_mapped(PageId(2)));
  // Page 5 keeps its window page and is now num_references twice; the one of page 3 is unused.
  swa.replace(PageId(3), PageId(5));
  EXPECT_EQ(swa.translate(TokenSlot(10)), before);
  swa.forget(pages_of({2, 3}));
  swa.drop(pages_of({5}));
  EXPECT_EQ(swa.num_referenced_pages(), 1);
  swa.drop(pages_of({5}));
  EXPECT_EQ(swa.num_unused_pages(), 1);
  swa.check_conservation();
}

TEST(SwaSlots, RejectsInvalidArguments) {
  SwaSlots swa(4, 8, 5);
  const auto rejected = [&](auto&& call) { return error_message(ErrorCode::kInternal, call); };
  EXPECT_THAT(rejected([&] { (void)swa.map(make_slots({8, 3})); }), HasSubstr("slot 3: slots are 4 to 31"));
  EXPECT_THAT(rejected([&] { swa.hold(pages_of({8})); }), HasSubstr("page 8: pages are 1 to 7"));
  EXPECT_THAT(rejected([&] { swa.hold(pages_of({2})); }), HasSubstr("page 2 has no window page"));
  EXPECT_THAT(rejected([&] { swa.drop(pages_of({2})); }), HasSubstr("no request references page 2"));
  EXPECT_EQ(swa.num_referenced_pages(), 0);
  ASSERT_TRUE(swa.map(make_slots({8})));
  EXPECT_THAT(rejected([&] { swa.forget(pages_of({2})); }), HasSubstr("free page 2 is referenced"));
  swa.check_conservation();
}

// Random calls of map, hold, drop and forget, compared with a model that counts references.
RC_GTEST_PROP(SwaSlots, ConserveWindowPages, ()) {
  const int page_size = *rc::gen::element(1, 4, 16);
  const int num_pages = *rc::gen::inRange(2, 20), num_swa_pages = *rc::gen::inRange(2, 12);
  SwaSlots swa(page_size, num_pages, num_swa_pages);
  std::map<int32_t, int> references;  // for pages that have a window page
  const int num_steps = *rc::gen::inRange(0, 60);
  for (int step = 0; step < num_steps; ++step) {
    const int32_t id = *rc::gen::inRange(1, num_pages);
    const PageId page[] = {PageId(id)};
    const bool mapped = swa.is_mapped(page[0]);
    RC_ASSERT(!references.contains(id) || references[id] == 0 || mapped);
    const int num_references = mapped ? references[id] : 0;
    switch (*rc::gen::inRange(0, 4)) {
      case 0: {
        if (mapped) break;
        const bool fits = swa.num_available_pages() > 0;
        RC_ASSERT(swa.map({{TokenSlot(id * page_size + *rc::gen::inRange(0, page_size))}}) == fits);
        if (fits) references[id] = 1;
        break;
      }
      case 1:
        if (!mapped) break;
        swa.hold(page);
        references[id] = num_references + 1;
        break;
      case 2:
        if (num_references == 0) break;
        swa.drop(page);
        --references[id];
        break;
      default:
        if (num_references != 0) break;
        swa.forget(page);
        RC_ASSERT(!swa.is_mapped(page[0]));
        references.erase(id);
    }
    swa.check_conservation();
    const auto num_referenced =
        std::ranges::count_if(references, [](const auto& one) { return one.second > 0; });
    RC_ASSERT(swa.num_referenced_pages() == num_referenced);
  }
}

SwaKvPool::Config small_halves() {
  const MhaKvPool::Config half{.num_layers = 1,
                               .num_kv_heads = 2,
                               .head_dim_qk = 8,
                               .head_dim_v = 8,
                               .page_size = 4,
                               .num_pages = 0,
                               .dtype = DType::kF32,
                               .scales = {}};
  SwaKvPool::Config config{.full = half, .swa = half, .windowed = {true, false, true}};
  config.swa.num_layers = 2;
  config.full.num_pages = 8;
  config.swa.num_pages = 5;
  return config;
}

TEST(SwaKvPool, WindowLayersAreInASeparateHalf) {
  const SwaSlots slots(4, 8, 5);
  SwaKvPool pool(small_halves(), slots.slot_map());
  EXPECT_EQ(pool.num_pages(), 8);
  EXPECT_EQ(pool.layer(1).k.shape[0], 8);
  EXPECT_EQ(pool.layer(1).slot_map, nullptr);
  for (const int layer_id : {0, 2}) {
    EXPECT_EQ(pool.layer(layer_id).k.shape[0], 5);
    EXPECT_EQ(pool.layer(layer_id).slot_map, slots.slot_map().as<int32_t>());
  }
  EXPECT_NE(pool.layer(0).k.data, pool.layer(2).k.data);
  EXPECT_EQ(pool.bytes_per_token(), 3u * 2 * 2 * 8 * sizeof(float));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { pool.layer(3); }),
              HasSubstr("layer 3: SwaKvPool has layers 0 to 2"));
}

TEST(SwaKvPool, RejectsMismatchedHalves) {
  SwaKvPool::Config config = small_halves();
  config.swa.num_layers = 1;
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument, [&] { SwaKvPool(config, SwaSlots(4, 8, 5).slot_map()); }),
      HasSubstr("1 full layers and 2 with a window: the halves have 1 and 1"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [] { SwaKvPool(small_halves(), SwaSlots(4, 9, 5).slot_map()); }),
              HasSubstr("slot map int32[36] on cpu: expected int32[32] on cpu"));
}

// Gemma 3 27B: 62 layers, every sixth with full attention. With a window of 1,024 and 32,768 tokens, a ratio
// of 1/8 keeps every request's window and a chunk of 2,048.
TEST(SwaKvPool, FiveOfSixWindowLayersTripleTheCapacity) {
  std::vector<CacheSpec> caches;
  for (int layer = 0; layer < 60; ++layer)
    add_layer(caches, {.kind = layer % 6 == 5 ? CacheKind::kFull : CacheKind::kWindow,
                       .layers = {layer},
                       .num_kv_heads = 16,
                       .head_dim_qk = 128,
                       .head_dim_v = 128,
                       .window_left = layer % 6 == 5 ? -1 : 1023});
  const CacheStorageConfig one = make_cache_storage_config(caches, 16, DType::kBF16);
  const CacheStorageConfig halves =
      make_cache_storage_config(caches, 16, DType::kBF16, {}, SwaHalf{.full_tokens_ratio = 0.125});
  EXPECT_GT(one.page_bytes() / halves.page_bytes(), 3.0);
}

}  // namespace
}  // namespace attend
