#include "attend/exec/saturation_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/tensor/cuda.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kPageSize = 4, kDim = 8, kHeads = 2;
constexpr uint8_t kLargestE4m3 = 0x7e, kLargestE5m2 = 0x7b, kSign = 0x80;

MhaKvPool make_pool_config(DType dtype, KvLayout layout) {
  return MhaKvPool({.num_layers = 2,
                    .num_kv_heads = kHeads,
                    .head_dim_qk = kDim,
                    .head_dim_v = kDim,
                    .page_size = kPageSize,
                    .num_pages = 4,
                    .dtype = dtype,
                    .layout = layout,
                    .scales = {}});
}

void put(const TensorView& kv, int slot, int head, int element, uint8_t bits) {
  static_cast<uint8_t*>(kv.data)[slot / kPageSize * kv.strides[0] + slot % kPageSize * kv.strides[1] +
                                 head * kv.strides[2] + element] = bits;
}

TEST(CountSaturated, CountsSaturatedValuesOfGivenSlots) {
  const std::vector<TokenSlot> slots{TokenSlot(5), TokenSlot(6), TokenSlot(12)};
  for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor})
    for (const auto& [dtype, largest] :
         {std::pair(DType::kF8E4M3, kLargestE4m3), std::pair(DType::kF8E5M2, kLargestE5m2)}) {
      const MhaKvPool pool = make_pool_config(dtype, layout);
      put(pool.layer(1).k, 5, 0, 7, largest);
      put(pool.layer(1).v, 12, 1, 0, largest | kSign);
      put(pool.layer(1).k, 7, 0, 0, largest);      // slot of another request
      put(pool.layer(1).k, 6, 1, 3, largest - 1);  // the next smaller value
      const SaturationCount count = count_saturated(pool, 1, slots);
      EXPECT_EQ(count.num_saturated, 2);
      EXPECT_EQ(count.num_values, 3 * kHeads * kDim * 2);
      EXPECT_EQ(count_saturated(pool, 0, slots).num_saturated, 0);
    }
}

TEST(CountSaturated, IgnoresOtherDtypes) {
  const std::vector<TokenSlot> slots{TokenSlot(5)};
  EXPECT_EQ(count_saturated(make_pool_config(DType::kBF16, KvLayout::kHeadMajor), 0, slots).num_values, 0);
}

std::string logged(SaturationMonitor& monitor, const KvPool& pool) {
  const std::vector<TokenSlot> slots{TokenSlot(5)};
  testing::internal::CaptureStderr();
  monitor.check(pool, slots);
  return testing::internal::GetCapturedStderr();
}

TEST(SaturationMonitor, WarnsOnce) {
  const MhaKvPool pool = make_pool_config(DType::kF8E4M3, KvLayout::kHeadMajor);
  SaturationMonitor monitor(2);
  EXPECT_THAT(logged(monitor, pool), IsEmpty());
  put(pool.layer(1).k, 5, 0, 7, kLargestE4m3);
  EXPECT_THAT(logged(monitor, pool), HasSubstr("warning: K/V in fp8_e4m3: 1 of 64 values of a prompt"));
  EXPECT_THAT(logged(monitor, pool), IsEmpty());
}

TEST(SaturationMonitor, CountsOnAGpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  const Device gpu{DeviceType::kCuda, 0};
  const MhaKvPool pool({.num_layers = 1,
                        .num_kv_heads = kHeads,
                        .head_dim_qk = kDim,
                        .head_dim_v = kDim,
                        .page_size = kPageSize,
                        .num_pages = 4,
                        .dtype = DType::kF8E4M3,
                        .layout = KvLayout::kTokenMajor,
                        .device = gpu,
                        .scales = {}});
  const TensorView k = pool.layer(0).k;
  uint8_t largest = kLargestE4m3;
  cuda::OwnedStream stream(gpu);
  cuda::copy(TensorView::contiguous(&largest, DType::kU8, {1}),
             TensorView::contiguous(
                 static_cast<uint8_t*>(k.data) + 5 / kPageSize * k.strides[0] + 5 % kPageSize * k.strides[1],
                 DType::kU8, {1}, gpu),
             stream.get());
  cuda::synchronize(stream.get());
  const std::vector<TokenSlot> slots{TokenSlot(5)};
  EXPECT_EQ(count_saturated(pool, 0, slots).num_saturated, 1);
}

}  // namespace
}  // namespace attend
