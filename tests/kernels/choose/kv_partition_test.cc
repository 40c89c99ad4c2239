// Division of KV tiles among CTAs by a streamed plan (kernels/attention/cuda/common/kv_partition.h).
#include "attend/kernels/attention/cuda/common/plan/kv_partition.h"

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

// Number of KV tiles of each row tile. Each row tile occurs once per head that a CTA processes in sequence.
struct Batch {
  std::vector<int32_t> num_kv_tiles;
  int32_t heads_per_cta = 1;

  PartitionWork work() const {
    PartitionWork work{0, static_cast<int32_t>(num_kv_tiles.size()) * heads_per_cta, 0};
    for (const int32_t n : num_kv_tiles) {
      work.num_kv_tiles += n * heads_per_cta;
      work.longest = std::max(work.longest, n);
    }
    return work;
  }
};

// KV tiles of a work tile that belong to one CTA range.
struct Piece {
  int32_t row_tile, head, first, count;
};

// Work of every CTA range, iterated like the kernels do.
struct Division {
  Batch batch;
  KvPartition partition;
  int32_t length = 0;
  std::vector<UniformWorkTiles> row_tiles;
  std::vector<std::vector<Piece>> tiles_of_cta_range;

  Division(const PartitionRules& rules, Batch work_tiles) : batch(std::move(work_tiles)) {
    const PartitionWork work = batch.work();
    partition = partition_kv_tiles(rules, work);
    length = num_partition_units(work, partition);
    int32_t begin = 0;
    for (const int32_t n : batch.num_kv_tiles) {
      row_tiles.push_back({begin, n});
      begin += (n + partition.gap) * batch.heads_per_cta;
    }
    for (int32_t range = 0; range * partition.cta_range < length; ++range)
      tiles_of_cta_range.push_back(walk(range));
  }

 private:
  std::vector<Piece> walk(int32_t range) const {
    const int32_t begin = range * partition.cta_range;
    size_t row_tile = 0;
    while (begin >= row_tiles[row_tile].begin +
                        (row_tiles[row_tile].num_kv_tiles + partition.gap) * batch.heads_per_cta -
                        partition.gap)
      ++row_tile;
    const CtaRangeStart start = range_start(partition, length, row_tiles[row_tile], range);
    std::vector<Piece> pieces;
    int32_t left = start.length, head = start.work_tile, first = start.kv_tile;
    while (left > 0) {
      const int32_t count = std::min(left, row_tiles[row_tile].num_kv_tiles - first);
      pieces.push_back({static_cast<int32_t>(row_tile), head, first, count});
      left -= count + partition.gap;
      first = 0;
      if (++head < batch.heads_per_cta) continue;
      head = 0;
      ++row_tile;
    }
    return pieces;
  }
};

Batch any_batch() {
  Batch batch;
  const int num_row_tiles = *rc::gen::inRange(1, 40);
  const bool uniform = *rc::gen::arbitrary<bool>();
  const int max_kv_tiles = *rc::gen::element(1, 3, 20, 300);
  const int32_t first = *rc::gen::inRange(1, max_kv_tiles + 1);
  for (int i = 0; i < num_row_tiles; ++i)
    batch.num_kv_tiles.push_back(uniform ? first : *rc::gen::inRange(1, max_kv_tiles + 1));
  batch.heads_per_cta = *rc::gen::inRange(1, 4);
  return batch;
}

PartitionRules any_rules() {
  return {.num_cta_ranges = *rc::gen::inRange(1, 140),
          .min_cta_range = *rc::gen::inRange(1, 5),
          .start_cost = *rc::gen::inRange(0, 6),
          .merge_cost = *rc::gen::element(0, 0, 7, 40)};
}

RC_GTEST_PROP(KvPartition, AssignsEveryKvTileToOneCtaRange, ()) {
  const PartitionRules rules = any_rules();
  const Division division(rules, any_batch());
  RC_ASSERT(static_cast<int32_t>(division.tiles_of_cta_range.size()) <= rules.num_cta_ranges);
  std::map<std::pair<int32_t, int32_t>, std::vector<std::pair<int32_t, Piece>>> cta_ranges_of_work_tile;
  for (size_t range = 0; range < division.tiles_of_cta_range.size(); ++range)
    for (const Piece& piece : division.tiles_of_cta_range[range])
      cta_ranges_of_work_tile[{piece.row_tile, piece.head}].push_back({static_cast<int32_t>(range), piece});
  const auto& batch = division.batch;
  RC_ASSERT(cta_ranges_of_work_tile.size() ==
            batch.num_kv_tiles.size() * static_cast<size_t>(batch.heads_per_cta));
  for (const auto& [work_tile, pieces] : cta_ranges_of_work_tile) {
    const UniformWorkTiles& uniform = division.row_tiles[static_cast<size_t>(work_tile.first)];
    const CtaRangeSpan parts =
        cta_ranges_of_tile(division.partition,
                           uniform.begin + work_tile.second * (uniform.num_kv_tiles + division.partition.gap),
                           uniform.num_kv_tiles);
    RC_ASSERT(static_cast<size_t>(parts.count) == pieces.size());
    int32_t next = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [range, piece] = pieces[i];
      RC_ASSERT(range == parts.first_cta_range + static_cast<int32_t>(i));
      RC_ASSERT(piece.first == next && piece.count > 0);
      next += piece.count;
    }
    RC_ASSERT(next == uniform.num_kv_tiles);
  }
}

// A partial result is identified by its CTA and by whether its work tile started in an earlier range, so each
// range has at most one of each.
RC_GTEST_PROP(KvPartition, WritesAtMostOnePartialResultOfEachKind, ()) {
  const Division division(any_rules(), any_batch());
  for (const std::vector<Piece>& pieces : division.tiles_of_cta_range) {
    int num_started_before = 0, num_started_here = 0;
    for (const Piece& piece : pieces) {
      const int32_t n = division.batch.num_kv_tiles[static_cast<size_t>(piece.row_tile)];
      if (piece.count == n) continue;
      ++(piece.first > 0 ? num_started_before : num_started_here);
    }
    RC_ASSERT(num_started_before <= 1);
    RC_ASSERT(num_started_here <= 1);
  }
}

// A CTA range costs at most an even share plus one start. Ranges aligned with work tiles may cost
// slightly more, and up to one and a half merges.
RC_GTEST_PROP(KvPartition, ChargesStartsOfWorkTiles, ()) {
  const PartitionRules rules = any_rules();
  const Division division(rules, any_batch());
  const PartitionWork work = division.batch.work();
  const int32_t even = std::max(rules.min_cta_range, (num_partition_units(work, {1, rules.start_cost}) +
                                                      rules.num_cta_ranges - 1) /
                                                         rules.num_cta_ranges) +
                       rules.start_cost;
  for (const std::vector<Piece>& pieces : division.tiles_of_cta_range) {
    int32_t cost = 0;
    for (const Piece& piece : pieces) cost += piece.count + rules.start_cost;
    RC_ASSERT(cost <= even + even / 32 + rules.merge_cost + rules.merge_cost / 2);
  }
}

int num_shared_ranges(const Division& division) {
  return static_cast<int>(std::count_if(division.tiles_of_cta_range.begin(),
                                        division.tiles_of_cta_range.end(),
                                        [](const auto& pieces) { return pieces.size() > 1; }));
}

TEST(KvPartition, AlignsCtaRangesWithUniformWorkTiles) {
  // 13 KV tiles for each of 3 requests and 33 CTA ranges: 7 ranges of 2 tiles per request.
  const Division few({.num_cta_ranges = 33, .min_cta_range = 2, .start_cost = 2, .merge_cost = 0},
                     {{13, 13, 13}});
  EXPECT_EQ(few.partition.cta_range, 2);
  EXPECT_EQ(few.tiles_of_cta_range.size(), 21u);
  EXPECT_EQ(num_shared_ranges(few), 0);
  const Division many({.num_cta_ranges = 33, .min_cta_range = 2, .start_cost = 2, .merge_cost = 0},
                      {std::vector<int32_t>(128, 16)});
  EXPECT_EQ(many.tiles_of_cta_range.size(), 32u);
  for (const auto& pieces : many.tiles_of_cta_range) EXPECT_EQ(pieces.size(), 4u);
}

TEST(KvPartition, KeepsWorkTilesWholeIfAMergeCostsMore) {
  const PartitionRules rules{.num_cta_ranges = 7, .min_cta_range = 2, .start_cost = 16, .merge_cost = 32};
  EXPECT_EQ(Division(rules, {{33}}).tiles_of_cta_range.size(), 1u);
  EXPECT_EQ(Division(rules, {{33}, 2}).tiles_of_cta_range.size(), 2u);
  EXPECT_EQ(Division(rules, {{100}}).tiles_of_cta_range.size(), 7u);
}

TEST(KvPartition, AssignsNoTwoWorkTilesToAShortCtaRange) {
  const Division division({.num_cta_ranges = 33, .min_cta_range = 2, .start_cost = 2, .merge_cost = 0},
                          {{13, 9, 17}});
  EXPECT_EQ(division.partition.cta_range, 2);
  EXPECT_EQ(num_shared_ranges(division), 0);
}

TEST(KvPartition, HasNoGapsWithoutCosts) {
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{5, 5, 5}, {5, 7, 1}, {300}})
    EXPECT_EQ(
        Division({.num_cta_ranges = 16, .min_cta_range = 1, .start_cost = 0, .merge_cost = 0}, {lengths})
            .partition.gap,
        0);
}

}  // namespace
}  // namespace attend::kernels::cuda
