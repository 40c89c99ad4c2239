#include "attend/kernels/kv_store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace attend::conformance {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Stores two tokens of one head with 8 elements in a pool of three pages of two slots.
struct SmallStore {
  SmallStore() {
    for (size_t i = 0; i < 16; ++i) {
      k[i] = static_cast<float>(i);
      v[i] = 100.0f + static_cast<float>(i);
    }
    args.k = TensorView::contiguous(k.data(), DType::kF32, {2, 1, 8});
    args.v = TensorView::contiguous(v.data(), DType::kF32, {2, 1, 8});
    args.to.k = TensorView::contiguous(k_cache.data(), DType::kF32, {3, 2, 1, 8});
    args.to.v = TensorView::contiguous(v_cache.data(), DType::kF32, {3, 2, 1, 8});
  }
  // First element of each slot.
  std::vector<float> first_elements(const std::vector<float>& cache) const {
    std::vector<float> elements;
    for (size_t slot = 0; slot < 6; ++slot) elements.push_back(cache[slot * 8]);
    return elements;
  }

  std::vector<float> k = std::vector<float>(16), v = std::vector<float>(16);
  std::vector<float> k_cache = std::vector<float>(48, -1.0f), v_cache = std::vector<float>(48, -1.0f);
  kernels::StoreKvArgs args;
};

TEST(ReferenceStore, WritesEachTokenIntoItsSlot) {
  SmallStore small;
  const std::vector<int32_t> slots = {5, 2};
  small.args.to.slots = slots;
  kernels::reference::store_kv(small.args);
  EXPECT_THAT(small.first_elements(small.k_cache), ElementsAre(-1, -1, 8, -1, -1, 0));
  EXPECT_THAT(small.first_elements(small.v_cache), ElementsAre(-1, -1, 108, -1, -1, 100));
  EXPECT_EQ(small.k_cache[2 * 8 + 7], 15.0f);
}

TEST(ReferenceStore, SkipsTokensWithoutASlot) {
  SmallStore small;
  const std::vector<int32_t> slots = {-1, 3};
  small.args.to.slots = slots;
  kernels::reference::store_kv(small.args);
  EXPECT_THAT(small.first_elements(small.k_cache), ElementsAre(-1, -1, -1, 8, -1, -1));
}

TEST(ReferenceStore, TranslatesSlotsThroughTheMap) {
  SmallStore small;
  const std::vector<int32_t> slots = {-1, 1}, slot_map = {77, 4};
  small.args.to.slots = slots;
  small.args.to.slot_map = slot_map.data();
  kernels::reference::store_kv(small.args);
  EXPECT_THAT(small.first_elements(small.k_cache), ElementsAre(-1, -1, -1, -1, 8, -1));
}

TEST(ReferenceStore, DividesByTheScales) {
  SmallStore small;
  const std::vector<int32_t> slots = {2, 3};
  small.args.to.slots = slots;
  small.args.to.k_scale = 2.0f;
  small.args.to.v_scale = 0.5f;
  kernels::reference::store_kv(small.args);
  EXPECT_EQ(small.k_cache[2 * 8 + 3], 1.5f);
  EXPECT_EQ(small.v_cache[2 * 8 + 3], 206.0f);
}

TEST(ReferenceStore, RoundsAndSaturatesFp8) {
  SmallStore small;
  std::vector<F8E4M3> k_cache(48), v_cache(48);
  small.args.to.k = TensorView::contiguous(k_cache.data(), DType::kF8E4M3, {3, 2, 1, 8});
  small.args.to.v = TensorView::contiguous(v_cache.data(), DType::kF8E4M3, {3, 2, 1, 8});
  small.k[0] = 1000.0f;
  small.k[1] = -1000.0f;
  small.k[2] = 17.0f;  // halfway between 16 and 18; rounds to even
  const std::vector<int32_t> slots = {2, 3};
  small.args.to.slots = slots;
  kernels::reference::store_kv(small.args);
  EXPECT_EQ(static_cast<float>(k_cache[16]), 448.0f);
  EXPECT_EQ(static_cast<float>(k_cache[17]), -448.0f);
  EXPECT_EQ(static_cast<float>(k_cache[18]), 16.0f);
}

TEST(ReferenceStore, StoresTheRopePartAfterTheLatentPart) {
  std::vector<float> latent(8, 6.0f), rope(8, 9.0f), cache(4 * 16, -1.0f);
  const std::vector<int32_t> slots = {3};
  kernels::reference::store_mla({.latent = TensorView::contiguous(latent.data(), DType::kF32, {1, 8}),
                                 .rope = TensorView::contiguous(rope.data(), DType::kF32, {1, 8}),
                                 .to = {.k = TensorView::contiguous(cache.data(), DType::kF32, {2, 2, 16}),
                                        .slots = slots,
                                        .k_scale = 3.0f}});
  const std::vector<float> row(cache.begin() + 3 * 16, cache.end());
  EXPECT_THAT(std::vector<float>(row.begin(), row.begin() + 8), Each(2.0f));
  EXPECT_THAT(std::vector<float>(row.begin() + 8, row.end()), Each(3.0f));
  EXPECT_THAT(std::vector<float>(cache.begin(), cache.begin() + 3 * 16), Each(-1.0f));
}

}  // namespace
}  // namespace attend::conformance
