// Latent rows with inline scales: their bytes, and the kernels that read them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "attend/kernels/kv_store/latent_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/kernels/kv_store/store.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;

constexpr int64_t kRowPages = 3, kRowPageSize = 2;

template <class T>
T read_of_row(const Tensor& cache, int64_t slot, int64_t byte) {
  T value;
  std::memcpy(&value, cache.as<uint8_t>() + slot * kScaledRow.bytes + byte, sizeof value);
  return value;
}

// One token. The maxima of its groups are the largest e4m3 value, a larger one, zero, and a power of two
// times the largest e4m3 value.
struct OneScaledRow {
  Tensor cache = Tensor::zeros({kRowPages, kRowPageSize, kScaledRow.bytes}, DType::kU8);
  Tensor latent = Tensor::zeros({1, kScaledRow.rank}, DType::kF32),
         rope = Tensor::zeros({1, kScaledRow.rope_dim}, DType::kF32);
  std::vector<int32_t> slots{3};

  OneScaledRow() {
    auto* const values = latent.as<float>();
    values[0] = -448.0f;
    values[127] = 1.0f;
    values[128] = 449.0f;
    values[200] = -3.0f;
    values[400] = 3.5f;
    for (int i = 0; i < kScaledRow.rope_dim; ++i) rope.as<float>()[i] = 0.1f * static_cast<float>(i);
  }
  StoreMlaArgs args(float scale = 1.0f) const {
    return {.latent = latent, .rope = rope, .to = {.k = cache, .slots = slots, .k_scale = scale}};
  }
};

TEST(ScaledRows, ContainE4m3PowerOfTwoDescalesAndBfloat16Rope) {
  OneScaledRow row;
  Stream stream;
  store_mla(row.args(), stream);
  const float descales[] = {1.0f, 2.0f, 0x1p-13f, 0x1p-7f};
  for (int64_t group = 0; group < 4; ++group)
    EXPECT_EQ(read_of_row<float>(row.cache, 3, 512 + 4 * group), descales[group]) << "group " << group;
  EXPECT_EQ(read_of_row<uint8_t>(row.cache, 3, 0), F8E4M3(-448.0f).bits);
  EXPECT_EQ(read_of_row<uint8_t>(row.cache, 3, 127), F8E4M3(1.0f).bits);
  EXPECT_EQ(read_of_row<uint8_t>(row.cache, 3, 128), F8E4M3(224.0f).bits) << "449 / 2 is between 224 and 240";
  EXPECT_EQ(read_of_row<uint8_t>(row.cache, 3, 200), F8E4M3(-1.5f).bits);
  EXPECT_EQ(read_of_row<uint8_t>(row.cache, 3, 400), F8E4M3(448.0f).bits);
  for (int64_t i = 0; i < kScaledRow.rope_dim; ++i)
    EXPECT_EQ(read_of_row<uint16_t>(row.cache, 3, 528 + 2 * i), BF16(0.1f * static_cast<float>(i)).bits);
  for (const int64_t slot : {0, 1, 2, 4, 5})
    for (int64_t byte = 0; byte < kScaledRow.bytes; ++byte)
      ASSERT_EQ(read_of_row<uint8_t>(row.cache, slot, byte), 0) << "slot " << slot;
}

TEST(ScaledRows, AreGatheredAsValuesTimesTheScaleOfTheLayer) {
  OneScaledRow row;
  Stream stream;
  store_mla(row.args(0.5f), stream);
  // Position 1 of a request of three keys, one of them new.
  const std::vector<int32_t> table{0, 3, 0}, rows{0}, seqlen_kv{3}, cu_seqlen_q{0, 1};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<int32_t> sums(2), lengths(1);
    const Tensor out = Tensor::zeros({1, kScaledRow.width()}, dtype);
    gather_latent({.cache = row.cache,
                   .scale = 0.5f,
                   .requests = {.table = table.data(), .stride = 3, .rows = rows, .seqlen_kv = seqlen_kv},
                   .cu_seqlen_q = cu_seqlen_q,
                   .first = 1,
                   .count = 1,
                   .out = out,
                   .cu_seqlen_kv = sums,
                   .seqlen_kv = lengths},
                  stream);
    EXPECT_EQ(lengths[0], 1);
    visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
      const auto at = [&](int64_t d) { return static_cast<float>(out.as<T>()[d]); };
      EXPECT_EQ(at(0), -448.0f);
      EXPECT_EQ(at(128), 448.0f);
      EXPECT_EQ(at(129), 0.0f);
      EXPECT_EQ(at(400), 3.5f);
      EXPECT_EQ(at(kScaledRow.rank + 10), 0.5f * static_cast<float>(BF16(2.0f)));
    });
  }
}

TEST(ScaledRows, MatchTheDequantizationOfFlashMlaRows) {
  OneScaledRow row;
  Stream stream;
  store_mla(row.args(), stream);
  const Tensor slots = Tensor::empty({1, 1}, DType::kI32),
               out = Tensor::zeros({1, 1, kScaledRow.width()}, DType::kF32);
  slots.as<int32_t>()[0] = row.slots[0];
  const std::vector<int32_t> counts{1};
  dequantize_rows({.cache = row.cache, .slots = slots, .counts = counts, .out = out}, stream);
  EXPECT_EQ(out.as<float>()[0], -448.0f);
  EXPECT_EQ(out.as<float>()[200], -3.0f);
  EXPECT_EQ(out.as<float>()[400], 3.5f);
  EXPECT_EQ(out.as<float>()[kScaledRow.rank + 10], 1.0f);
}

TEST(ScaledRows, PreserveNanAndInfinity) {
  OneScaledRow row;
  Stream stream;
  row.latent.as<float>()[5] = std::nanf("");
  row.latent.as<float>()[300] = INFINITY;
  store_mla(row.args(), stream);
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E4M3::from_bits(read_of_row<uint8_t>(row.cache, 3, 5)))));
  EXPECT_EQ(read_of_row<float>(row.cache, 3, 512), 1.0f) << "of the other numbers of the group";
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E4M3::from_bits(read_of_row<uint8_t>(row.cache, 3, 300)))));
}

TEST(ScaledRows, RejectOtherRanksWidthsAndAlignments) {
  const OneScaledRow row;
  const auto error_text = [](const StoreMlaArgs& args) {
    Stream stream;
    return error_message(ErrorCode::kInvalidArgument, [&] { store_mla(args, stream); });
  };
  StoreMlaArgs args = row.args();
  args.latent = args.latent.slice(1, 0, 256);
  EXPECT_EQ(error_text(args),
            "cache uint8[3, 2, 656] on cpu: rows of fp8_ds_mla have 512 and 64 values, not 256 and 64");
  args = row.args();
  args.to.k = args.to.k.slice(2, 0, 640);
  EXPECT_EQ(error_text(args), "cache uint8[3, 2, 640] on cpu: expected 656 in dimension 2");
  const Tensor wide = Tensor::zeros({kRowPages, kRowPageSize, kScaledRow.bytes + 8}, DType::kU8);
  args = row.args();
  args.to.k = wide.view().slice(2, 0, kScaledRow.bytes);
  EXPECT_EQ(error_text(args),
            "cache uint8[3, 2, 656] on cpu: expected rows that start at multiples of 16 bytes");
}

TEST(CacheDType, NameIsParsedBack) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kU8})
    EXPECT_EQ(parse_cache_dtype(cache_dtype_name(dtype)), dtype);
  EXPECT_EQ(cache_dtype_name(DType::kU8), "fp8_ds_mla");
  EXPECT_EQ(parse_cache_dtype("fp8"), DType::kF8E4M3);
  for (const char* name : {"uint8", "int32", "nvfp4"})
    EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { parse_cache_dtype(name); }),
              "cache dtype '" + std::string(name) +
                  "': expected float32, float16, bfloat16, fp8_e4m3 (or fp8), fp8_e5m2 or, for latent "
                  "attention, fp8_ds_mla");
}

}  // namespace
}  // namespace attend::kernels
