#include "attend/tensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace attend {
namespace {

TEST(Tensor, IsAlignedToACacheLine) {
  for (int64_t size : {0, 1, 63, 64, 65, 4097}) {
    const Tensor tensor = Tensor::empty({size}, DType::kU8);
    EXPECT_FALSE(tensor.view().empty());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().data) % 64, 0u) << size;
    EXPECT_EQ(tensor.shape(0), size);
  }
}

TEST(Tensor, ZerosReturnsZeros) {
  const Tensor tensor = Tensor::zeros({7, 9}, DType::kF32);
  const View<float> values = tensor.span<float>();
  EXPECT_EQ(values.size(), 63u);
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float value) { return value == 0.0f; }));
}

TEST(Tensor, ReadsRowMajorValues) {
  const std::vector<int64_t> values{1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::from<int64_t>(values, {2, 3});
  EXPECT_EQ(*tensor.view()[1][0].as<int64_t>(), 4);
  EXPECT_THROW(Tensor::from<int64_t>(values, {2, 2}), Error);
}

TEST(Tensor, CopiesShareTheStorageUntilTheLastIsDestroyed) {
  Tensor first = Tensor::zeros({4}, DType::kI32);
  const std::weak_ptr<void> storage = first.storage();
  {
    const Tensor second = first;
    second.as<int32_t>()[2] = 7;
    EXPECT_EQ(first.as<int32_t>()[2], 7);
    first = Tensor();
    EXPECT_FALSE(storage.expired());
  }
  EXPECT_TRUE(storage.expired());
}

TEST(Tensor, RejectsANegativeExtent) { EXPECT_THROW(Tensor::empty({2, -3}, DType::kF32), Error); }

}  // namespace
}  // namespace attend
