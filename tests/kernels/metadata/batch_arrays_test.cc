// Batch arrays derived from lengths, cumulative lengths and new keys.
#include "attend/kernels/kv_store/batch_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attend/base/error.h"

namespace attend::kernels {
namespace {

using ::testing::ElementsAre;

struct Derived {
  std::vector<int32_t> cu_seqlen_q, seqlen_kv, first_key, new_slots;
};

Derived derive(const BatchSource& source, size_t num_new_tokens = 0) {
  const auto num_reqs = static_cast<size_t>(num_batch_reqs(source));
  Derived derived{std::vector<int32_t>(num_reqs + 1, -7), std::vector<int32_t>(num_reqs, -7),
                  std::vector<int32_t>(num_reqs + 1, -7), std::vector<int32_t>(num_new_tokens, -7)};
  Stream stream;
  derive_batch(source,
               {.cu_seqlen_q = derived.cu_seqlen_q,
                .seqlen_kv = derived.seqlen_kv,
                .first_key = derived.first_key,
                .new_slots = derived.new_slots},
               stream);
  return derived;
}

TEST(BatchArrays, UniformLengthsYieldMultiples) {
  const Derived derived = derive({.num_reqs = 3,
                                  .seqlen_q = {.uniform = 2},
                                  .seqlen_cached = {.uniform = 9},
                                  .locations = {.row_spacing = 16, .capacity = 16}});
  EXPECT_THAT(derived.cu_seqlen_q, ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(derived.seqlen_kv, ElementsAre(9, 9, 9));
  EXPECT_THAT(derived.first_key, ElementsAre(0, 16, 32, 0));
}

TEST(BatchArrays, CumulativeLengthsOverrideLengths) {
  const std::vector<int32_t> cu_q{0, 3, 3, 4}, cu_kv{0, 5, 6, 16}, each{50, 50, 50};
  const Derived derived = derive({.num_reqs = 3,
                                  .seqlen_q = {.cu = cu_q.data(), .uniform = 8},
                                  .seqlen_cached = {.cu = cu_kv.data(), .per_request = each.data()},
                                  .locations = {.capacity = 16}});
  EXPECT_THAT(derived.cu_seqlen_q, ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(derived.seqlen_kv, ElementsAre(5, 1, 10));
}

TEST(BatchArrays, NewKeysFollowCachedKeysInThePageTable) {
  const std::vector<int32_t> cached{3, 0}, table{5, 2, -1, 7, -1, -1};
  const Derived derived =
      derive({.num_reqs = 2,
              .seqlen_q = {.uniform = 2},
              .seqlen_cached = {.per_request = cached.data()},
              .seqlen_new = {.uniform = 2},
              .locations = {.table = table.data(), .table_stride = 3, .page_size = 4, .capacity = 12}},
             4);
  EXPECT_THAT(derived.seqlen_kv, ElementsAre(5, 2));
  EXPECT_THAT(derived.new_slots, ElementsAre(23, 8, 28, 29));
}

TEST(BatchArrays, NewKeysOfSelectedRowsAndTrailingPadding) {
  const std::vector<int32_t> cached{1, 4}, rows{2, 0}, cu_new{0, 0, 2};
  const Derived derived = derive({.num_reqs = 2,
                                  .seqlen_cached = {.per_request = cached.data()},
                                  .seqlen_new = {.cu = cu_new.data()},
                                  .locations = {.rows = rows.data(), .row_spacing = 10, .capacity = 8}},
                                 3);
  EXPECT_THAT(derived.first_key, ElementsAre(20, 0, 0));
  EXPECT_THAT(derived.new_slots, ElementsAre(4, 5, -1));
}

// Returns the message of the error that `call` throws.
template <class Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(BatchArrays, RequestsWithUnusedQueriesAreSplitInTwo) {
  const std::vector<int32_t> cu_q{0, 3, 7}, cu_kv{0, 5, 14}, used{1, 4};
  const Derived derived = derive({.num_reqs = 2,
                                  .seqlen_q = {.cu = cu_q.data()},
                                  .seqlen_cached = {.cu = cu_kv.data()},
                                  .locations = {.begins = cu_kv.data(), .capacity = 14},
                                  .seqused_q = used.data()});
  EXPECT_THAT(derived.cu_seqlen_q, ElementsAre(0, 1, 3, 7, 7));
  EXPECT_THAT(derived.seqlen_kv, ElementsAre(5, 0, 9, 0));
  EXPECT_THAT(derived.first_key, ElementsAre(0, 0, 5, 5, 0));
}

TEST(BatchArrays, RowsOfAPageTableStartAtMultiplesOfItsStride) {
  const std::vector<int32_t> table(8), used{1, 1};
  const Derived derived = derive({.num_reqs = 2,
                                  .seqlen_q = {.uniform = 1},
                                  .locations = {.table = table.data(), .table_stride = 4, .capacity = 3},
                                  .seqused_q = used.data()});
  EXPECT_THAT(derived.first_key, ElementsAre(0, 0, 4, 4, 0));
}

TEST(BatchArrays, LeftpadSkipsTheFirstKeysOfRows) {
  const std::vector<int32_t> cached{5, 3}, leftpad{2, 4}, rows{1, 0};
  const Derived derived = derive({.num_reqs = 2,
                                  .seqlen_cached = {.per_request = cached.data()},
                                  .seqlen_new = {.uniform = 1},
                                  .locations = {.rows = rows.data(), .row_spacing = 10, .capacity = 8},
                                  .leftpad = leftpad.data()},
                                 2);
  EXPECT_THAT(derived.seqlen_kv, ElementsAre(4, 0));
  EXPECT_THAT(derived.first_key, ElementsAre(12, 4, 0));
  EXPECT_THAT(derived.new_slots, ElementsAre(15, 3)) << "after all cached keys";
}

TEST(BatchArrays, KeysInPagesAfterALeftpadHaveTheirOwnSlots) {
  const std::vector<int32_t> table{5, 2, 1, 7}, leftpad{1, 2};
  std::vector<int32_t> slots(8, -7);
  Stream stream;
  // Pages of 2 tokens with a stride of 3 tokens.
  derive_batch(
      {.num_reqs = 2,
       .seqlen_cached = {.uniform = 4},
       .locations =
           {.table = table.data(), .table_stride = 2, .page_size = 2, .page_spacing = 3, .capacity = 4},
       .leftpad = leftpad.data()},
      {.key_slots = slots}, stream);
  EXPECT_THAT(slots, ElementsAre(16, 6, 7, -7, 21, 22, -7, -7));
}

TEST(BatchArrays, RejectsArgumentsWithoutARequest) {
  const std::vector<int32_t> five{1, 5}, negative{-1, 0};
  const BatchSource source{.num_reqs = 2,
                           .seqlen_q = {.uniform = 4},
                           .seqlen_cached = {.uniform = 4},
                           .locations = {.row_spacing = 8, .capacity = 8}};
  BatchSource other = source;
  other.leftpad = five.data();
  EXPECT_EQ(error_text([&] { derive(other); }),
            "leftpad 5 of request 1: expected 0 to 4, the number of its keys");
  other.leftpad = negative.data();
  EXPECT_EQ(error_text([&] { derive(other); }),
            "leftpad -1 of request 0: expected 0 to 4, the number of its keys");
  other = source;
  other.seqused_q = five.data();
  EXPECT_EQ(error_text([&] { derive(other); }),
            "seqused_q 5 of request 1: expected 0 to 4, the number of its queries");
}

TEST(BatchArrays, RejectsKeysBeyondTheCapacity) {
  const std::vector<int32_t> cached{2, 7};
  try {
    derive({.num_reqs = 2,
            .seqlen_cached = {.per_request = cached.data()},
            .seqlen_new = {.uniform = 2},
            .locations = {.capacity = 8}},
           4);
    FAIL() << "9 keys fit into 8";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "request 1: 7 keys and 2 new ones: there is room for 8");
  }
}

TEST(BatchArrays, RejectsAnArrayOfAnotherSize) {
  std::vector<int32_t> lengths(3);
  Stream stream;
  EXPECT_THROW(derive_batch({.num_reqs = 2}, {.seqlen_kv = lengths}, stream), Error);
}

// A dense cache of 2 rows of 4 tokens with one head of 1, and a new key for each row.
struct Appended {
  std::vector<float> cache = std::vector<float>(8), added{1.0f, 2.0f};
  std::vector<int32_t> cached{1, 3}, seqlen_kv = std::vector<int32_t>(2), new_slots = std::vector<int32_t>(2);

  void append(View<const int32_t> slots) {
    const TensorView to = TensorView::contiguous(cache.data(), DType::kF32, {8, 1, 1, 1});
    const TensorView from = TensorView::contiguous(added.data(), DType::kF32, {2, 1, 1});
    Stream stream;
    append_keys({.num_reqs = 2,
                 .seqlen_cached = {.per_request = cached.data()},
                 .seqlen_new = {.uniform = 1},
                 .locations = {.row_spacing = 4, .capacity = 4}},
                {.seqlen_kv = seqlen_kv, .new_slots = new_slots},
                {.k = from, .v = from, .to = {.k = to, .v = to, .slots = slots}}, stream);
  }
};

TEST(AppendKeys, StoresNewKeysAfterCachedOnesAndCountsThem) {
  Appended keys;
  keys.append(keys.new_slots);
  EXPECT_THAT(keys.cache, ElementsAre(0, 1, 0, 0, 0, 0, 0, 2));
  EXPECT_THAT(keys.seqlen_kv, ElementsAre(2, 4));
}

TEST(AppendKeys, RejectsSlotsOtherThanTheNewOnes) {
  Appended keys;
  const std::vector<int32_t> others(2);
  EXPECT_THROW(keys.append(others), Error);
}

}  // namespace
}  // namespace attend::kernels
