// Rows of a latent cache that queries select.
#include "attend/kernels/kv_store/selected_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
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

TEST(CompactSlots, KeepsTheOrderOfExistingSlots) {
  const Tensor slots = int32_rows({{5, -1, 9, 2}, {-1, -1, 10, -7}, {0, 1, 2, 3}, {9, 9, 0, -1}});
  const Tensor out = Tensor::zeros({4, 4}, DType::kI32);
  std::vector<int32_t> counts(4, -1), lengths = {4, 2};
  Stream stream;
  compact_slots({.slots = slots, .num_slots = 10, .out = out, .counts = counts}, stream);
  EXPECT_EQ(counts, (std::vector<int32_t>{3, 0, 4, 3}));
  EXPECT_EQ((std::vector<int32_t>(out.as<int32_t>(), out.as<int32_t>() + 16)),
            (std::vector<int32_t>{5, 9, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3, 9, 9, 0, 0}));
  compact_slots({.slots = slots,
                 .lengths = lengths,
                 .rows_per_length = 2,
                 .num_slots = 10,
                 .out = out,
                 .counts = counts},
                stream);
  EXPECT_EQ(counts, (std::vector<int32_t>{3, 0, 2, 2}));
}

TEST(CompactSlots, RejectsAMismatchedNumberOfLengths) {
  const Tensor slots = int32_rows({{0}, {0}, {0}}), out = Tensor::zeros({3, 1}, DType::kI32);
  std::vector<int32_t> counts(3), lengths(2);
  Stream stream;
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [&] {
                            compact_slots({.slots = slots,
                                           .lengths = lengths,
                                           .rows_per_length = 2,
                                           .num_slots = 1,
                                           .out = out,
                                           .counts = counts},
                                          stream);
                          }),
            "lengths of 2 entries: expected one for each 2 of 3 rows");
}

// Two pages of two rows. Row s contains (1 + s) 2^(g - 1) in group g, and s - d after the groups.
Tensor quantized_rows(QuantizedLayout layout) {
  const QuantizedRow& held = quantized_row(layout);
  constexpr int64_t kPageRows = 2;
  Tensor cache = Tensor::zeros({2, kPageRows, held.bytes()}, DType::kU8);
  for (int64_t slot = 0; slot < 4; ++slot) {
    auto* const page = cache.as<uint8_t>() + slot / kPageRows * kPageRows * held.bytes();
    auto* const row = page + slot % kPageRows * held.row_bytes;
    const F8E4M3 code(static_cast<float>(1 + slot));
    std::memset(row, code.bits, static_cast<size_t>(held.num_scaled));
    for (int64_t group = 0; group < held.num_scaled / held.values_per_scale; ++group) {
      const float scale = std::ldexp(1.0f, static_cast<int>(group) - 1);
      if (layout == QuantizedLayout::kV32)
        std::memcpy(row + held.num_scaled + 4 * group, &scale, sizeof scale);
      else
        page[kPageRows * held.row_bytes + slot % kPageRows * held.scales_bytes + group] =
            static_cast<uint8_t>(126 + group);
    }
    for (int64_t d = 0; d < kPlainValues; ++d) {
      const BF16 plain(static_cast<float>(slot - d));
      std::memcpy(row + held.plain_offset + 2 * d, &plain.bits, sizeof plain.bits);
    }
  }
  return cache;
}

// Expected element d of row s.
float expected_element(const QuantizedRow& held, int32_t slot, int64_t d) {
  if (d >= held.num_scaled) return static_cast<float>(slot - (d - held.num_scaled));
  return static_cast<float>(1 + slot) * std::ldexp(1.0f, static_cast<int>(d / held.values_per_scale) - 1);
}

TEST(DequantizeRows, DequantizesSelectedRows) {
  const Tensor slots = int32_rows({{3, 0}, {2, 77}});
  const std::vector<int32_t> counts = {2, 1}, first = {0, 2};
  constexpr int32_t kNone = -1;
  const std::vector<int32_t> wanted = {3, 0, kNone, kNone, kNone, 2};
  for (const QuantizedLayout layout : {QuantizedLayout::kV32, QuantizedLayout::kModel1})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const QuantizedRow& held = quantized_row(layout);
      const Tensor cache = quantized_rows(layout), out = Tensor::zeros({2, 3, held.dim()}, dtype);
      Stream stream;
      dequantize_rows(
          {.layout = layout, .cache = cache, .slots = slots, .counts = counts, .first = first, .out = out},
          stream);
      visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
        for (int64_t row = 0; row < std::ssize(wanted); ++row)
          for (int64_t d = 0; d < held.dim(); ++d) {
            const int32_t slot = wanted[static_cast<size_t>(row)];
            ASSERT_EQ(static_cast<float>(out.as<T>()[row * held.dim() + d]),
                      slot == kNone ? 0.0f : expected_element(held, slot, d))
                << dtype << " " << row << " " << d;
          }
      });
    }
}

TEST(DequantizeRows, ReadsAScaleWithoutAValueAsNan) {
  constexpr auto kLayout = QuantizedLayout::kModel1;
  Tensor cache = quantized_rows(kLayout);
  uint8_t* const scales = cache.as<uint8_t>() + 2 * kModel1Row.row_bytes;
  scales[1] = 0xff;
  scales[2] = 0;  // 2^-127
  const Tensor out = Tensor::zeros({1, 1, kModel1Row.dim()}, DType::kF32);
  const std::vector<int32_t> counts = {1};
  Stream stream;
  dequantize_rows(
      {.layout = kLayout, .cache = cache, .slots = int32_rows({{0}}), .counts = counts, .out = out}, stream);
  EXPECT_TRUE(std::isnan(out.as<float>()[64]));
  EXPECT_EQ(out.as<float>()[128], std::ldexp(1.0f, -127));
}

TEST(DequantizeRows, RejectsMismatchedArguments) {
  Tensor cache = quantized_rows(QuantizedLayout::kV32);
  const Tensor slots = int32_rows({{3, 4}}), out = Tensor::zeros({1, 2, kV32Row.dim()}, DType::kF32);
  std::vector<int32_t> counts = {2}, first;
  auto layout = QuantizedLayout::kV32;
  TensorView view = cache;
  Stream stream;
  const auto message = [&] {
    return error_message(ErrorCode::kInvalidArgument, [&] {
      dequantize_rows(
          {.layout = layout, .cache = view, .slots = slots, .counts = counts, .first = first, .out = out},
          stream);
    });
  };
  EXPECT_EQ(message(), "slots[0, 1] is 4: the cache has 4");
  counts = {3};
  EXPECT_EQ(message(), "counts[0] is 3: expected 0 to 2");
  counts = {1};
  first = {2};
  EXPECT_EQ(message(), "first[0] is 2: out holds 2 rows, 1 are requested");
  first = {0, 0};
  EXPECT_EQ(message(), "first of 2 entries: expected 1");
  layout = QuantizedLayout::kModel1;
  cache = Tensor::zeros({2, 4, kModel1Row.bytes()}, DType::kU8);
  view = cache;
  view.shape[1] = 2;
  view.strides[1] += 8;
  EXPECT_NE(message().find("expected contiguous pages"), std::string::npos) << message();
}

}  // namespace
}  // namespace attend::kernels
