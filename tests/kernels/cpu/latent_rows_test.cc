// Latent rows gathered from a pool in chunks.
#include "attend/kernels/kv_store/latent_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;

constexpr int64_t kPageSize = 4, kPages = 8, kWidth = 16, kPositions = 12;

// Three requests of 9, 2 and 5 keys, of which 2, 2 and 1 are new. Slot s contains 100 s + column.
struct Pool {
  Tensor cache;
  std::vector<int32_t> table = std::vector<int32_t>(4 * kPositions, -1), rows = {2, 0, 3};
  std::vector<int32_t> seqlen_kv = {9, 2, 5}, cu_seqlen_q = {0, 2, 4, 5};
  std::vector<int32_t> sums = std::vector<int32_t>(4), lengths = std::vector<int32_t>(3);
  Tensor out = Tensor::zeros({9, kWidth}, DType::kF32);

  explicit Pool(DType dtype) : cache(Tensor::zeros({kPages, kPageSize, kWidth}, dtype)) {
    visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
      for (int64_t i = 0; i < cache.view().num_elements(); ++i)
        cache.as<T>()[i] = T(static_cast<float>(i / kWidth) + static_cast<float>(i % kWidth) / 16.0f);
    });
    // Pages 6, 2 and 7 of the first request; 4 and 3 of the last.
    place(2, {6, 2, 7}, 9);
    place(0, {5}, 2);
    place(3, {4, 3}, 5);
  }
  void place(int32_t row, std::vector<int32_t> pages, int32_t num_keys) {
    for (int32_t p = 0; p < num_keys; ++p)
      table[static_cast<size_t>(row * kPositions + p)] =
          pages[static_cast<size_t>(p / kPageSize)] * static_cast<int32_t>(kPageSize) + p % 4;
  }
  GatherLatentArgs args(int32_t first, int32_t count) {
    return {.cache = cache,
            .scale = 2.0f,
            .requests = {.table = table.data(), .stride = kPositions, .rows = rows, .seqlen_kv = seqlen_kv},
            .cu_seqlen_q = cu_seqlen_q,
            .first = first,
            .count = count,
            .out = out,
            .cu_seqlen_kv = sums,
            .seqlen_kv = lengths};
  }
  float at(int64_t row, int64_t column) const { return out.view()[row].as<float>()[column]; }
};

TEST(GatherLatent, GathersTheSamePositionsOfEveryPrefix) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Pool pool(dtype);
    Stream stream;
    gather_latent(pool.args(3, 3), stream);
    EXPECT_EQ(pool.lengths, (std::vector<int32_t>{3, 0, 1}));
    EXPECT_EQ(pool.sums, (std::vector<int32_t>{0, 3, 3, 4}));
    const int slots[] = {27, 8, 9, 19};
    for (int64_t row = 0; row < 4; ++row) {
      EXPECT_EQ(pool.at(row, 0), 2.0f * static_cast<float>(slots[row]))
          << to_string(dtype) << ", row " << row;
      EXPECT_EQ(pool.at(row, 8), 2.0f * (static_cast<float>(slots[row]) + 0.5f));
    }
    EXPECT_EQ(pool.at(4, 0), 0.0f) << "after the last";
    gather_latent(pool.args(6, 3), stream);
    EXPECT_EQ(pool.lengths, (std::vector<int32_t>{1, 0, 0}));
    EXPECT_EQ(pool.at(0, 0), 20.0f);
  }
}

TEST(GatherLatent, RejectsMoreRowsThanFit) {
  Pool pool(DType::kF32);
  Stream stream;
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { gather_latent(pool.args(0, 4), stream); }),
            "out float32[9, 16] on cpu: 3 requests need up to 4 rows each");
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { gather_latent(pool.args(0, 0), stream); }),
            "gather_latent: 0 keys from 0: expected at least 1 key, from 0 or later");
}

TEST(CopyToHeads, CopiesTheRowToEveryHead) {
  Stream stream;
  const Tensor from = Tensor::zeros({3, 10}, DType::kF32), to = Tensor::zeros({3, 4, 8}, DType::kF32);
  for (int i = 0; i < 30; ++i) from.as<float>()[i] = static_cast<float>(i);
  copy_to_heads(from.view().slice(1, 4, 10), to.view().slice(2, 2, 8), stream);
  for (int token = 0; token < 3; ++token)
    for (int head = 0; head < 4; ++head)
      for (int d = 0; d < 8; ++d)
        EXPECT_EQ(to.view()[token][head].as<float>()[d],
                  d < 2 ? 0.0f : static_cast<float>(token * 10 + 4 + d - 2));
}

TEST(Lengths, AreDifferencesOfCumulativeLengths) {
  Stream stream;
  const std::vector<int32_t> sums{0, 3, 3, 10};
  std::vector<int32_t> lengths(3);
  cu_seqlens_to_lengths(sums, lengths, stream);
  EXPECT_EQ(lengths, (std::vector<int32_t>{3, 0, 7}));
}

}  // namespace
}  // namespace attend::kernels
