// Attention to drafts with several branches without a tree mask, as FlashAttention computes it
// (documentation, section on verify and draft steps): reproduces the documented numbers, and compares merged
// parts with attention over all keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/metadata/metadata.h"

namespace attend::conformance {
namespace {

using kernels::RequestRows;
using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

constexpr int kHeadDim = 8;

std::vector<float> random_floats(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

TensorView rows_of(std::vector<float>& values) {
  return TensorView::contiguous(values.data(), DType::kF32,
                                {static_cast<int64_t>(values.size()) / kHeadDim, 1, kHeadDim});
}

// Output and LSE of some tokens for one head.
struct Part {
  std::vector<float> out, lse;
};

// Random K/V of one layer in pages.
class Pages {
 public:
  Pages(int num_pages, int page_size)
      : num_pages_(num_pages),
        page_size_(page_size),
        k_(random_floats(num_pages * page_size * kHeadDim, 1)),
        v_(random_floats(num_pages * page_size * kHeadDim, 2)) {}

  void copy_slot(int from, int to) {
    for (std::vector<float>* values : {&k_, &v_})
      std::copy_n(values->begin() + from * kHeadDim, kHeadDim, values->begin() + to * kHeadDim);
  }

  // The page table has a row of `width` pages per request.
  Part attend(std::vector<float>& q, std::vector<int32_t> page_table, int width, kernels::QueryBatch batch,
              kernels::AttentionMask attention_mask) {
    const int64_t num_tokens = static_cast<int64_t>(q.size()) / kHeadDim;
    Part part{.out = std::vector<float>(q.size()), .lse = std::vector<float>(q.size() / kHeadDim)};
    kernels::AttentionArgs args{.q = rows_of(q),
                                .out = rows_of(part.out),
                                .lse = TensorView::contiguous(part.lse.data(), DType::kF32, {num_tokens, 1}),
                                .kv = {.k = pages_of(k_), .v = pages_of(v_), .index = {}},
                                .batch = batch,
                                .attention_mask = attention_mask,
                                .score = {}};
    args.kv.index.kind = kernels::KvIndexKind::kPageTable;
    args.kv.index.table = page_table.data();
    args.kv.index.table_stride = width;
    args.kv.index.page_size = page_size_;
    kernels::reference::attention(args);
    return part;
  }

 private:
  TensorView pages_of(std::vector<float>& values) {
    return TensorView::contiguous(values.data(), DType::kF32, {num_pages_, page_size_, 1, kHeadDim});
  }

  int num_pages_, page_size_;
  std::vector<float> k_, v_;
};

Part merge(Part a, Part b) {
  const auto lse_view = [](std::vector<float>& lse) {
    return TensorView::contiguous(lse.data(), DType::kF32, {static_cast<int64_t>(lse.size()), 1});
  };
  kernels::reference::merge({.out_a = rows_of(a.out),
                             .out_b = rows_of(b.out),
                             .lse_a = lse_view(a.lse),
                             .lse_b = lse_view(b.lse),
                             .out = rows_of(a.out),
                             .lse = lse_view(a.lse)});
  return a;
}

std::vector<int32_t> make_page_table(const RequestRows& requests, int page_size, int width) {
  std::vector<int32_t> table(requests.rows.size() * static_cast<size_t>(width));
  kernels::build_page_table(requests, page_size, width, table);
  return table;
}

// Two branches of three draft steps with pages of 4. The branches share the request's full pages. Each branch
// has its own further pages, starting with a copy of the partial page.
struct DraftExample {
  int seqlen;                           // length of the prefix
  std::array<int, 2> starts;            // position of each branch's first draft in its row
  std::vector<int32_t> prefix, drafts;  // page ids
};

class DraftStep : public testing::TestWithParam<DraftExample> {};

TEST_P(DraftStep, ReadsFullPagesOnceAndThenTheBranchsOwn) {
  constexpr int kPageSize = 4, kSteps = 3, kBranches = 2;
  const DraftExample& example = GetParam();
  const int last = example.seqlen % kPageSize, shared = example.seqlen - last;
  const int branch_slots = (last + kSteps + kPageSize - 1) / kPageSize * kPageSize;
  // Row with pages 2, 5, 9 and 3.
  std::vector<int32_t> row;
  for (const int page : {2, 5, 9, 3})
    for (int offset = 0; offset < kPageSize; ++offset) row.push_back(page * kPageSize + offset);
  Pages pages(10, kPageSize);
  for (int offset = 0; offset < last; ++offset)
    pages.copy_slot(row[static_cast<size_t>(shared + offset)],
                    row[static_cast<size_t>(shared + branch_slots + offset)]);

  const std::vector<int32_t> row_0{0}, both{0, 1};
  for (int step = 0; step < kSteps; ++step) {
    for (int branch = 0; branch < kBranches; ++branch)
      EXPECT_EQ(shared + branch * branch_slots + last, example.starts[static_cast<size_t>(branch)]);
    std::vector<float> q = random_floats(kBranches * kHeadDim, 3 + static_cast<unsigned>(step));
    const std::vector<int32_t> prefix_len{shared}, own_lens(kBranches, step + 1 + last);
    const auto prefix =
        make_page_table({.table = row.data(), .stride = 16, .rows = row_0, .seqlen_kv = prefix_len},
                        kPageSize, shared / kPageSize);
    const auto drafts = make_page_table(
        {.table = row.data() + shared, .stride = branch_slots, .rows = both, .seqlen_kv = own_lens},
        kPageSize, 1);
    EXPECT_EQ(prefix, example.prefix);
    EXPECT_EQ(drafts, example.drafts);

    const std::vector<int32_t> together{0, kBranches}, apart{0, 1, 2};
    const Part of_prefix = pages.attend(
        q, prefix, shared / kPageSize,
        {.cu_seqlen_q = together, .seqlen_kv = prefix_len, .max_seqlen_q = kBranches}, {.causal = false});
    const Part of_drafts = pages.attend(
        q, drafts, 1, {.cu_seqlen_q = apart, .seqlen_kv = own_lens, .max_seqlen_q = 1}, {.causal = false});

    std::vector<int32_t> whole;
    for (const int32_t own : drafts) {
      whole.insert(whole.end(), prefix.begin(), prefix.end());
      whole.push_back(own);
    }
    const std::vector<int32_t> lens(kBranches, example.seqlen + step + 1);
    const Part expected = pages.attend(q, whole, shared / kPageSize + 1,
                                       {.cu_seqlen_q = apart, .seqlen_kv = lens, .max_seqlen_q = 1}, {});
    const Part merged = merge(of_prefix, of_drafts);
    EXPECT_THAT(merged.out, Pointwise(FloatNear(1e-6f), expected.out));
    EXPECT_THAT(merged.lse, Pointwise(FloatNear(1e-6f), expected.lse));
  }
}

INSTANTIATE_TEST_SUITE_P(DocumentsExamples, DraftStep,
                         testing::Values(DraftExample{5, {5, 9}, {2}, {5, 9}},
                                         DraftExample{8, {8, 12}, {2, 5}, {9, 3}}));

// A prefix of 5 and three drafts, the third a sibling of the second: one request with one query per draft.
// Its keys are the prefix and the visible drafts, mapped to SWA slots.
TEST(SwaVerify, TreeReadsPrefixAndVisibleDraftsThroughTheSlotMap) {
  constexpr int kPrefix = 5, kDrafts = 3;
  const kernels::AttentionMask window{.window_left = 3};
  const std::vector<int32_t> row{20, 21, 22, 23, 24, 8, 9, 10};
  std::vector<int32_t> slot_map(32, 0);
  for (size_t i = 0; i < row.size(); ++i)
    slot_map[static_cast<size_t>(row[i])] = 12 - static_cast<int32_t>(i);
  std::vector<float> q = random_floats(kDrafts * kHeadDim, 5);
  Pages slots(32, 1);

  const std::vector<uint64_t> tree_mask{0b001, 0b011, 0b101};
  const std::vector<int32_t> one{0}, whole_len{kPrefix + kDrafts}, cu_seqlen_q{0, kDrafts},
      positions{5, 6, 6};
  const Part expected = slots.attend(q,
                                     make_page_table({.table = row.data(),
                                                      .stride = 8,
                                                      .rows = one,
                                                      .seqlen_kv = whole_len,
                                                      .slot_map = slot_map.data()},
                                                     1, 8),
                                     8,
                                     {.cu_seqlen_q = cu_seqlen_q,
                                      .seqlen_kv = whole_len,
                                      .max_seqlen_q = kDrafts,
                                      .tree_mask = tree_mask,
                                      .tree_mask_words = 1,
                                      .positions = positions},
                                     window);

  const kernels::TreeRequests tree = kernels::expand_tree_requests(
      tree_mask, 1, cu_seqlen_q, View<const int32_t>(row).subspan(kPrefix, kDrafts));
  std::vector<int32_t> table, lens;
  for (int draft = 0; draft < kDrafts; ++draft) {
    table.insert(table.end(), row.begin(), row.begin() + kPrefix);
    table.insert(table.end(), tree.slots.begin() + draft * kDrafts,
                 tree.slots.begin() + (draft + 1) * kDrafts);
    lens.push_back(kPrefix + tree.seqlen_kv[static_cast<size_t>(draft)]);
  }
  EXPECT_THAT(lens, ElementsAre(6, 7, 7));
  const std::vector<int32_t> apart{0, 1, 2, 3};
  const auto attend = [&](const std::vector<int32_t>& page_table) {
    return slots.attend(q, page_table, kPrefix + kDrafts,
                        {.cu_seqlen_q = apart, .seqlen_kv = lens, .max_seqlen_q = 1}, window);
  };
  EXPECT_NE(attend(table).out, expected.out) << "full slots name other keys of the SWA pool";
  kernels::translate_slots(slot_map.data(), table, table);
  const Part expanded = attend(table);
  EXPECT_THAT(expanded.out, Pointwise(FloatNear(1e-6f), expected.out));
  EXPECT_THAT(expanded.lse, Pointwise(FloatNear(1e-6f), expected.lse));
}

}  // namespace
}  // namespace attend::conformance
