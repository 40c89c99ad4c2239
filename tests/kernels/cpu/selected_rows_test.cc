// Rows of a latent cache that queries chose.
#include "attend/kernels/kv_store/selected_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attend/base/error.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;

Tensor int32_rows(const std::vector<std::vector<int32_t>>& rows) {
  Tensor made = Tensor::empty({std::ssize(rows), std::ssize(rows[0])}, DType::kI32);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), made.as<int32_t>() + i * rows[0].size());
  return made;
}

TEST(CompactSlots, KeepsTheOrderOfThoseThatExist) {
  const Tensor slots = int32_rows({{5, -1, 9, 2}, {-1, -1, 10, -7}, {0, 1, 2, 3}, {9, 9, 0, -1}});
  const Tensor out = Tensor::zeros({4, 4}, DType::kI32);
  std::vector<int32_t> counts(4, -1), lengths = {4, 2};
  Stream stream;
  compact_slots({.slots = slots, .num_slots = 10, .out = out, .counts = counts}, stream);
  EXPECT_EQ(counts, (std::vector<int32_t>{3, 0, 4, 3}));
  EXPECT_EQ((std::vector<int32_t>(out.as<int32_t>(), out.as<int32_t>() + 16)),
            (std::vector<int32_t>{5, 9, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3, 9, 9, 0, 0}));
  compact_slots(
      {.slots = slots, .lengths = lengths, .rows_each = 2, .num_slots = 10, .out = out, .counts = counts},
      stream);
  EXPECT_EQ(counts, (std::vector<int32_t>{3, 0, 2, 2}));
}

TEST(CompactSlots, RefusesLengthsOfAnotherNumberOfRows) {
  const Tensor slots = int32_rows({{0}, {0}, {0}}), out = Tensor::zeros({3, 1}, DType::kI32);
  std::vector<int32_t> counts(3), lengths(2);
  Stream stream;
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [&] {
                            compact_slots({.slots = slots,
                                           .lengths = lengths,
                                           .rows_each = 2,
                                           .num_slots = 1,
                                           .out = out,
                                           .counts = counts},
                                          stream);
                          }),
            "lengths of 2 entries: expected one for each 2 of 3 rows");
}

// Four rows, of which row s holds 1 + s, times 2^g in group g, and s - d behind them.
Tensor quantised_rows() {
  Tensor cache = Tensor::zeros({2, 2, kQuantisedRowBytes}, DType::kU8);
  for (int64_t slot = 0; slot < 4; ++slot) {
    auto* const row = cache.as<uint8_t>() + slot * kQuantisedRowBytes;
    const F8E4M3 code(static_cast<float>(1 + slot));
    std::memset(row, code.bits, kScaledValues);
    for (int64_t group = 0; group < 4; ++group) {
      const auto scale = static_cast<float>(1 << group);
      std::memcpy(row + kScalesOffset + 4 * group, &scale, sizeof scale);
    }
    for (int64_t d = 0; d < kPlainValues; ++d) {
      const BF16 plain(static_cast<float>(slot - d));
      std::memcpy(row + kPlainOffset + 2 * d, &plain.bits, sizeof plain.bits);
    }
  }
  return cache;
}

TEST(DequantiseRows, WidensTheRowsThatAreWanted) {
  const Tensor cache = quantised_rows(), slots = int32_rows({{3, 0}, {2, 77}});
  const std::vector<int32_t> counts = {2, 1}, wanted = {3, 0, 2};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor out = Tensor::zeros({4, 576}, dtype);
    Stream stream;
    dequantise_rows({.cache = cache, .slots = slots, .counts = counts, .out = out}, stream);
    visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t d = 0; d < 576; ++d) {
          const auto slot = static_cast<float>(wanted[static_cast<size_t>(row)]);
          const float value = d < kScaledValues ? (1.0f + slot) * static_cast<float>(1 << d / kValuesPerScale)
                                                : slot - static_cast<float>(d - kScaledValues);
          ASSERT_EQ(static_cast<float>(out.as<T>()[row * 576 + d]), value) << dtype << " " << row << " " << d;
        }
      EXPECT_EQ(static_cast<float>(out.as<T>()[3 * 576]), 0.0f);
    });
  }
}

TEST(DequantiseRows, RefusesSlotsThatTheCacheHasNot) {
  const Tensor cache = quantised_rows(), slots = int32_rows({{3, 4}}),
               out = Tensor::zeros({2, 576}, DType::kF32);
  std::vector<int32_t> counts = {2};
  Stream stream;
  const auto call = [&] {
    dequantise_rows({.cache = cache, .slots = slots, .counts = counts, .out = out}, stream);
  };
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, call), "slots[0, 1] is 4: the cache has 4");
  counts = {3};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, call), "counts[0] is 3: there is room for 2");
}

}  // namespace
}  // namespace attend::kernels
