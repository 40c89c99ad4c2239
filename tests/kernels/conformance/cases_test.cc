// Coverage of the generated cases, printing of cases, and poisoning of built cases.
#include "tests/kernels/conformance/cases/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>

#include "attend/kernels/common/element.h"
#include "attend/kernels/metadata/find_page.h"
#include "tests/kernels/conformance/cases/built_case.h"
#include "tests/kernels/conformance/cases/poison.h"

namespace attend::conformance {
namespace {

using kernels::KvIndexKind;
using ::testing::Each;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

template <class Key>
std::set<Key> distinct_values(const std::vector<AttentionCase>& cases,
                              const std::function<Key(const AttentionCase&)>& key) {
  std::set<Key> values;
  for (const AttentionCase& c : cases) values.insert(key(c));
  return values;
}

bool any(const std::vector<AttentionCase>& cases, const std::function<bool(const AttentionCase&)>& holds) {
  return std::any_of(cases.begin(), cases.end(), holds);
}

bool has_lengths(const AttentionCase& c, const std::function<bool(const Lengths&)>& holds) {
  return std::any_of(c.requests.begin(), c.requests.end(), holds);
}

TEST(ConformanceCases, AreTheSameInEveryRun) {
  const auto first = conformance_cases(), second = conformance_cases();
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(to_literal(first[i]), to_literal(second[i]));
}

TEST(ConformanceCases, AreAFewHundredWithDistinctSeeds) {
  const auto cases = conformance_cases();
  EXPECT_GE(cases.size(), 300u);
  EXPECT_LE(cases.size(), 500u);
  EXPECT_GT(distinct_values<uint64_t>(cases, [](const auto& c) { return c.seed; }).size(),
            cases.size() * 99 / 100);
}

TEST(ConformanceCases, CoverEveryLengthAroundEveryPageSize) {
  const auto cases = conformance_cases();
  for (int page_size : {16, 64, 128})
    for (int seqlen_kv : {0, 1, page_size - 1, page_size, page_size + 1})
      EXPECT_TRUE(any(cases,
                      [&](const AttentionCase& c) {
                        return c.page_size == page_size && c.index != KvIndexKind::kContiguous &&
                               has_lengths(
                                   c, [&](const Lengths& lengths) { return lengths.seqlen_kv == seqlen_kv; });
                      }))
          << "page size " << page_size << ", length " << seqlen_kv;
  EXPECT_THAT(distinct_values<int>(cases, [](const auto& c) { return c.page_size; }),
              IsSupersetOf({1, 16, 64, 128}));
}

TEST(ConformanceCases, CoverEveryGroupSizeAndHeadDim) {
  const auto cases = conformance_cases();
  EXPECT_THAT(distinct_values<int>(cases, [](const auto& c) { return c.num_q_heads / c.num_kv_heads; }),
              IsSupersetOf({1, 3, 4, 7, 8}));
  using Dims = std::pair<int, int>;
  EXPECT_THAT(distinct_values<Dims>(cases,
                                    [](const auto& c) {
                                      return Dims{c.head_dim_qk, c.head_dim_v};
                                    }),
              IsSupersetOf({Dims{64, 64}, Dims{80, 80}, Dims{96, 96}, Dims{112, 112}, Dims{128, 128},
                            Dims{256, 256}, Dims{192, 128}, Dims{512, 512}, Dims{576, 512}}));
}

// Pairs of features are covered, so that no feature occurs only with one value of another.
TEST(ConformanceCases, CoverPairsOfDTypesIndicesLayoutsAndPageOrders) {
  const auto cases = conformance_cases();
  for (DType q : {DType::kF32, DType::kF16, DType::kBF16})
    for (DType kv : {DType::kF16, DType::kBF16, DType::kF8E4M3}) {
      std::set<KvIndexKind> indices;
      std::set<KvLayout> layouts;
      std::set<PageOrder> orders;
      for (const AttentionCase& c : cases) {
        if (c.q_dtype != q || c.kv_dtype != kv) continue;
        indices.insert(c.index);
        layouts.insert(c.layout);
        orders.insert(c.page_order);
      }
      EXPECT_THAT(indices, SizeIs(4)) << q << " and " << kv;
      EXPECT_THAT(layouts, SizeIs(2)) << q << " and " << kv;
      EXPECT_THAT(orders, SizeIs(4)) << q << " and " << kv;
    }
}

TEST(ConformanceCases, CoverEdgesOfWindowsAndChunksInEveryPhase) {
  const auto cases = conformance_cases();
  const std::function<bool(const AttentionCase&)> phases[] = {
      [](const auto& c) { return c.tree == TreeShape::kChain; },
      [](const auto& c) { return c.tree == TreeShape::kTree; },
      [](const auto& c) {
        return c.tree == TreeShape::kNone && c.max_seqlen_q() - c.max_seqlen_q_slack == 1;
      },
      [](const auto& c) {
        return c.tree == TreeShape::kNone && c.max_seqlen_q() - c.max_seqlen_q_slack > 1;
      }};
  for (const auto& phase : phases)
    for (int edge : {-1, 0, 1}) {
      const auto at_edge = [&](const AttentionCase& c, int limit) {
        return phase(c) && has_lengths(c, [&](const Lengths& l) { return l.seqlen_kv == limit + edge; });
      };
      EXPECT_TRUE(
          any(cases, [&](const auto& c) { return c.window_left > 0 && at_edge(c, c.window_left + 1); }));
      EXPECT_TRUE(any(cases, [&](const auto& c) { return c.chunk > 1 && at_edge(c, c.chunk); }));
    }
}

TEST(ConformanceCases, CoverPaddingLongKvWideTreesAndQueriesBeyondTheKeys) {
  const auto cases = conformance_cases();
  EXPECT_TRUE(any(cases, [](const auto& c) { return c.requests.size() == 3 && c.num_pad_reqs == 1; }));
  EXPECT_TRUE(any(cases, [](const auto& c) { return c.num_pad_tokens > 0; }));
  EXPECT_TRUE(any(cases, [](const auto& c) { return c.requests.empty(); }));
  EXPECT_TRUE(any(cases, [](const auto& c) { return !c.causal; }));
  EXPECT_TRUE(any(cases, [](const auto& c) { return c.slot_map && c.window_left >= 0; }));
  for (auto rule : {kernels::SplitRule::kNone, kernels::SplitRule::kFixed, kernels::SplitRule::kBalanced})
    for (bool chunks : {false, true})
      EXPECT_TRUE(any(cases, [&](const auto& c) {
        return c.window_right > 0 && (c.chunk > 0) == chunks && c.split_rule == rule;
      }));
  EXPECT_TRUE(any(cases, [](const auto& c) {
    return c.tree == TreeShape::kTree && has_lengths(c, [](const Lengths& l) { return l.seqlen_q > 64; });
  }));
  EXPECT_TRUE(any(cases, [](const auto& c) {
    return has_lengths(c, [](const Lengths& l) { return l.seqlen_q > l.seqlen_kv && l.seqlen_kv > 0; });
  }));
  for (auto rule : {kernels::SplitRule::kNone, kernels::SplitRule::kFixed, kernels::SplitRule::kBalanced})
    EXPECT_TRUE(any(cases, [&](const auto& c) {
      return c.split_rule == rule && has_lengths(c, [](const Lengths& l) { return l.seqlen_kv >= 1000; });
    }));
}

TEST(ConformanceCases, CoverMlaWith16And128HeadsOf576) {
  const auto cases = mla_conformance_cases();
  for (int heads : {16, 128})
    EXPECT_TRUE(any(cases, [&](const auto& c) { return c.num_q_heads == heads && c.head_dim_qk == 576; }));
}

TEST(AttentionCase, PrintsItselfAsALiteral) {
  const AttentionCase c{.requests = {{1, 17}, {4, 9}},
                        .q_dtype = DType::kBF16,
                        .index = kernels::KvIndexKind::kCsr,
                        .page_size = 16,
                        .page_order = PageOrder::kReversed,
                        .layout = KvLayout::kHeadMajor,
                        .k_scale = 0.037f,
                        .causal = false,
                        .logit_cap = 50.0f,
                        .seed = 7u};
  EXPECT_EQ(
      to_literal(c),
      "AttentionCase{.requests = {{1, 17}, {4, 9}}, .q_dtype = DType::kBF16, .index = "
      "kernels::KvIndexKind::kCsr, .page_size = 16, .page_order = PageOrder::kReversed, .layout = "
      "KvLayout::kHeadMajor, .k_scale = 0.0370000005f, .causal = false, .logit_cap = 50.0f, .seed = 7u}");
}

TEST(BuiltCase, ValuesDoNotDependOnThePagesOfKv) {
  const AttentionCase c{.requests = {{2, 9}, {1, 5}}, .page_size = 4, .sinks = true, .seed = 11};
  AttentionCase other = c;
  other.index = KvIndexKind::kCsr;
  other.page_size = 16;
  other.page_order = PageOrder::kReversed;
  other.layout = KvLayout::kHeadMajor;
  const CaseValues a(c), b(other);
  EXPECT_EQ(a.q, b.q);
  EXPECT_EQ(a.k, b.k);
  EXPECT_EQ(a.v, b.v);
  EXPECT_EQ(a.sinks, b.sinks);
}

TEST(BuiltCase, PoisonsSlotsOutsideEveryMask) {
  // Decode at position 9 with a window of 4 keys: positions 6 to 9 are visible, in pages 1 and 2.
  const BuiltCase built({.requests = {{1, 10}}, .num_kv_heads = 1, .page_size = 4, .window_left = 3});
  int num_finite = 0;
  for (int slot = built.index.page_size; slot < built.index.num_pages * built.index.page_size; ++slot)
    num_finite += std::isfinite(kernels::reference::load(
        built.args.kv.v, kernels::reference::offset(built.args.kv.v, slot / 4, slot % 4)));
  EXPECT_EQ(num_finite, 4);
  for (int32_t p = 6; p < 10; ++p) {
    const int32_t slot = built.index.slot(0, p);
    EXPECT_TRUE(std::isfinite(kernels::reference::load(
        built.args.kv.v, kernels::reference::offset(built.args.kv.v, slot / 4, slot % 4))));
  }
}

TEST(BuiltCase, PoisonsTableEntriesOfPagesThatNoQueryNeeds) {
  const BuiltCase built(
      {.requests = {{1, 10}}, .index = KvIndexKind::kPageTable, .page_size = 4, .window_left = 3});
  ASSERT_THAT(built.index.table, SizeIs(6));  // three pages and unused entries
  EXPECT_EQ(built.index.table[0], kHugeId);
  EXPECT_EQ(built.index.table[1], built.index.pages[0][1]);
  EXPECT_EQ(built.index.table[2], built.index.pages[0][2]);
  EXPECT_THAT(std::vector<int32_t>(built.index.table.begin() + 3, built.index.table.end()), Each(kHugeId));
}

TEST(BuiltCase, SharesPagesFilledByCommonPrefixes) {
  const BuiltCase built({.requests = {{1, 10}, {3, 12}}, .page_size = 4, .shared_prefix = true});
  EXPECT_EQ(built.index.pages[0][0], built.index.pages[1][0]);
  EXPECT_EQ(built.index.pages[0][1], built.index.pages[1][1]);
  EXPECT_NE(built.index.pages[0][2], built.index.pages[1][2]);
  const auto row = [&](int64_t request, int64_t p) {
    const auto first =
        built.values.k.begin() + (built.values.cu_seqlen_kv[static_cast<size_t>(request)] + p) * 2 * 64;
    return std::vector<float>(first, first + 2 * 64);
  };
  EXPECT_EQ(row(0, 7), row(1, 7));
  EXPECT_NE(row(0, 8), row(1, 8));
}

TEST(BuiltCase, PadRequestsUseTheZeroPage) {
  const BuiltCase built({.requests = {{1, 5}}, .num_pad_reqs = 1, .pad_seqlen_q = 1, .num_pad_tokens = 2});
  EXPECT_EQ(built.tokens.seqlen_kv.back(), 1);
  EXPECT_EQ(built.index.rows.back(), 0);
  EXPECT_EQ(kernels::find_page(built.args.kv.index, 1, 0), 0);
  EXPECT_EQ(kernels::reference::load(built.args.kv.k, 0), 0.0);
  EXPECT_EQ(built.args.q.shape[0], 4);
  EXPECT_EQ(built.tokens.cu_seqlen_q.back(), 2);
}

TEST(BuiltCase, TreeTokensAttendToThemselvesAndTheirParents) {
  const BuiltCase built({.requests = {{9, 30}}, .tree = TreeShape::kTree, .seed = 5});
  bool branches = false;
  for (size_t j = 0; j < 9; ++j) {
    const uint64_t seen = built.tokens.tree_mask[j];
    EXPECT_TRUE((seen >> j) & 1);
    EXPECT_EQ(seen >> (j + 1), 0u) << "a token sees only what came before it";
    // The number of ancestors is the distance from the root, which follows the prefix.
    EXPECT_EQ(built.tokens.positions[j], 21 + std::popcount(seen) - 1);
    branches = branches || built.tokens.positions[j] != 21 + static_cast<int>(j);
  }
  EXPECT_TRUE(branches);
}

}  // namespace
}  // namespace attend::conformance
