// How a streamed plan divides the line of work among CTAs (kernels/attention/cuda/common/plan_line.h).
#include "attend/kernels/attention/cuda/common/plan/plan_line.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace attend::kernels::cuda {
namespace {

// Row tiles with their KV tiles, each as often on the line as CTAs have heads one after another.
struct Batch {
  std::vector<int32_t> num_kv_tiles;
  int32_t heads_of_cta = 1;

  LineWork work() const {
    LineWork work{0, static_cast<int32_t>(num_kv_tiles.size()) * heads_of_cta, 0};
    for (const int32_t n : num_kv_tiles) {
      work.num_kv_tiles += n * heads_of_cta;
      work.longest = std::max(work.longest, n);
    }
    return work;
  }
};

// KV tiles of a work tile that lie in one CTA range.
struct Piece {
  int32_t row_tile, head, first, count;
};

// What every CTA range computes, as kernels walk it.
struct Division {
  Batch batch;
  PlanLine line;
  int32_t length = 0;
  std::vector<AlikeWorkTiles> row_tiles;
  std::vector<std::vector<Piece>> pieces_of_range;

  Division(const LineRules& rules, Batch what) : batch(std::move(what)) {
    const LineWork work = batch.work();
    line = plan_line(rules, work);
    length = line_length(work, line);
    int32_t begin = 0;
    for (const int32_t n : batch.num_kv_tiles) {
      row_tiles.push_back({begin, n});
      begin += (n + line.gap) * batch.heads_of_cta;
    }
    for (int32_t range = 0; range * line.cta_range < length; ++range) pieces_of_range.push_back(walk(range));
  }

 private:
  std::vector<Piece> walk(int32_t range) const {
    const int32_t begin = range * line.cta_range;
    size_t row_tile = 0;
    while (begin >= row_tiles[row_tile].begin +
                        (row_tiles[row_tile].num_kv_tiles + line.gap) * batch.heads_of_cta - line.gap)
      ++row_tile;
    const RangeStart start = range_start(line, length, row_tiles[row_tile], range);
    std::vector<Piece> pieces;
    int32_t left = start.length, head = start.work_tile, first = start.kv_tile;
    while (left > 0) {
      const int32_t count = std::min(left, row_tiles[row_tile].num_kv_tiles - first);
      pieces.push_back({static_cast<int32_t>(row_tile), head, first, count});
      left -= count + line.gap;
      first = 0;
      if (++head < batch.heads_of_cta) continue;
      head = 0;
      ++row_tile;
    }
    return pieces;
  }
};

Batch any_batch() {
  Batch batch;
  const int num_row_tiles = *rc::gen::inRange(1, 40);
  const bool alike = *rc::gen::arbitrary<bool>();
  const int most = *rc::gen::element(1, 3, 20, 300);
  const int32_t first = *rc::gen::inRange(1, most + 1);
  for (int i = 0; i < num_row_tiles; ++i)
    batch.num_kv_tiles.push_back(alike ? first : *rc::gen::inRange(1, most + 1));
  batch.heads_of_cta = *rc::gen::inRange(1, 4);
  return batch;
}

LineRules any_rules() {
  return {.num_cta_ranges = *rc::gen::inRange(1, 140),
          .min_cta_range = *rc::gen::inRange(1, 5),
          .start_cost = *rc::gen::inRange(0, 6),
          .merge_cost = *rc::gen::element(0, 0, 7, 40)};
}

RC_GTEST_PROP(PlanLine, GivesEveryKvTileToOneCtaRange, ()) {
  const LineRules rules = any_rules();
  const Division division(rules, any_batch());
  RC_ASSERT(static_cast<int32_t>(division.pieces_of_range.size()) <= rules.num_cta_ranges);
  std::map<std::pair<int32_t, int32_t>, std::vector<std::pair<int32_t, Piece>>> pieces_of_work_tile;
  for (size_t range = 0; range < division.pieces_of_range.size(); ++range)
    for (const Piece& piece : division.pieces_of_range[range])
      pieces_of_work_tile[{piece.row_tile, piece.head}].push_back({static_cast<int32_t>(range), piece});
  const auto& batch = division.batch;
  RC_ASSERT(pieces_of_work_tile.size() ==
            batch.num_kv_tiles.size() * static_cast<size_t>(batch.heads_of_cta));
  for (const auto& [work_tile, pieces] : pieces_of_work_tile) {
    const AlikeWorkTiles& alike = division.row_tiles[static_cast<size_t>(work_tile.first)];
    const LineParts parts =
        parts_of(division.line, alike.begin + work_tile.second * (alike.num_kv_tiles + division.line.gap),
                 alike.num_kv_tiles);
    RC_ASSERT(static_cast<size_t>(parts.count) == pieces.size());
    int32_t next = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [range, piece] = pieces[i];
      RC_ASSERT(range == parts.first_cta_range + static_cast<int32_t>(i));
      RC_ASSERT(piece.first == next && piece.count > 0);
      next += piece.count;
    }
    RC_ASSERT(next == alike.num_kv_tiles);
  }
}

// A partial result's number is its CTA's and whether the work tile began before: each at most once.
RC_GTEST_PROP(PlanLine, LeavesOnePartialResultOfEachKindAtMost, ()) {
  const Division division(any_rules(), any_batch());
  for (const std::vector<Piece>& pieces : division.pieces_of_range) {
    int num_begun_before = 0, num_begun_here = 0;
    for (const Piece& piece : pieces) {
      const int32_t n = division.batch.num_kv_tiles[static_cast<size_t>(piece.row_tile)];
      if (piece.count == n) continue;
      ++(piece.first > 0 ? num_begun_before : num_begun_here);
    }
    RC_ASSERT(num_begun_before <= 1);
    RC_ASSERT(num_begun_here <= 1);
  }
}

// No CTA range costs more than its length, one start, and what ends with work tiles may cost more, also one
// and a half merges more.
RC_GTEST_PROP(PlanLine, ChargesStartsOfWorkTiles, ()) {
  const LineRules rules = any_rules();
  const Division division(rules, any_batch());
  const LineWork work = division.batch.work();
  const int32_t even =
      std::max(rules.min_cta_range,
               (line_length(work, {1, rules.start_cost}) + rules.num_cta_ranges - 1) / rules.num_cta_ranges) +
      rules.start_cost;
  for (const std::vector<Piece>& pieces : division.pieces_of_range) {
    int32_t cost = 0;
    for (const Piece& piece : pieces) cost += piece.count + rules.start_cost;
    RC_ASSERT(cost <= even + even / 32 + rules.merge_cost + rules.merge_cost / 2);
  }
}

int num_shared_ranges(const Division& division) {
  return static_cast<int>(std::count_if(division.pieces_of_range.begin(), division.pieces_of_range.end(),
                                        [](const auto& pieces) { return pieces.size() > 1; }));
}

TEST(PlanLine, EndsCtaRangesWithWorkTilesThatAreAlike) {
  // 13 KV tiles for each of 3 requests, 33 CTA ranges: 7 ranges of 2 for each.
  const Division few({.num_cta_ranges = 33, .min_cta_range = 2, .start_cost = 2, .merge_cost = 0},
                     {{13, 13, 13}});
  EXPECT_EQ(few.line.cta_range, 2);
  EXPECT_EQ(few.pieces_of_range.size(), 21u);
  EXPECT_EQ(num_shared_ranges(few), 0);
  const Division many({.num_cta_ranges = 33, .min_cta_range = 2, .start_cost = 2, .merge_cost = 0},
                      {std::vector<int32_t>(128, 16)});
  EXPECT_EQ(many.pieces_of_range.size(), 32u);
  for (const auto& pieces : many.pieces_of_range) EXPECT_EQ(pieces.size(), 4u);
}

TEST(PlanLine, LeavesWorkTilesWholeWhereAMergeCostsMore) {
  const LineRules rules{.num_cta_ranges = 7, .min_cta_range = 2, .start_cost = 16, .merge_cost = 32};
  EXPECT_EQ(Division(rules, {{33}}).pieces_of_range.size(), 1u);
  EXPECT_EQ(Division(rules, {{33}, 2}).pieces_of_range.size(), 2u);
  EXPECT_EQ(Division(rules, {{100}}).pieces_of_range.size(), 7u);
}

TEST(PlanLine, LeavesNoShortCtaRangeTwoWorkTiles) {
  const Division division({.num_cta_ranges = 33, .min_cta_range = 2, .start_cost = 2, .merge_cost = 0},
                          {{13, 9, 17}});
  EXPECT_EQ(division.line.cta_range, 2);
  EXPECT_EQ(num_shared_ranges(division), 0);
}

TEST(PlanLine, HasNoGapsWithoutCosts) {
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{5, 5, 5}, {5, 7, 1}, {300}})
    EXPECT_EQ(
        Division({.num_cta_ranges = 16, .min_cta_range = 1, .start_cost = 0, .merge_cost = 0}, {lengths})
            .line.gap,
        0);
}

}  // namespace
}  // namespace attend::kernels::cuda
