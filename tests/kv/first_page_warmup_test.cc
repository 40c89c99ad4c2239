#include "attend/kv/first_page_warmup.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

// Returns true if the memory at the start of page 1 of a cache is resident.
bool is_page_1_resident(const TensorView& cache) {
  const auto address = reinterpret_cast<uintptr_t>(cache.data) +
                       static_cast<uintptr_t>(cache.strides[0]) * size_of(cache.dtype);
  constexpr uintptr_t kPageBytes = 4096;
  unsigned char resident = 0;
  EXPECT_EQ(mincore(reinterpret_cast<void*>(address / kPageBytes * kPageBytes), 1, &resident), 0);
  return (resident & 1) != 0;
}

TEST(FirstPageWarmup, MakesPagesOfEveryLayerResidentAndZero) {
  // Tensors of 8 MiB, so that no huge page covers two of them.
  const MhaKvPool pool({.num_layers = 3,
                        .num_kv_heads = 8,
                        .head_dim_qk = 128,
                        .head_dim_v = 128,
                        .page_size = 64,
                        .num_pages = 64});
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_FALSE(is_page_1_resident(pool.layer(layer).k)) << layer;
    EXPECT_FALSE(is_page_1_resident(pool.layer(layer).v)) << layer;
  }
  { const FirstPageWarmup pages(pool, 3); }
  for (int layer = 0; layer < 3; ++layer) {
    const LayerKv kv = pool.layer(layer);
    EXPECT_TRUE(is_page_1_resident(kv.k)) << layer;
    EXPECT_TRUE(is_page_1_resident(kv.v)) << layer;
    EXPECT_EQ(static_cast<float>(kv.k[1][0][0].as<BF16>()[0]), 0.0f);
    EXPECT_EQ(static_cast<float>(kv.v[1][0][0].as<BF16>()[0]), 0.0f);
  }
}

}  // namespace
}  // namespace attend
