// Partition of the KV tiles of a streamed plan among CTAs: plain integers, for host and device.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda {

// Division of a sequence of units among CTA ranges. KV tiles are units. Those of a work tile are consecutive,
// with `gap` units between work tiles. CTA range c consists of the units [c * cta_range, (c + 1) *
// cta_range).
//
// A gap models the cost of starting a work tile: a CTA range that contains a gap has fewer KV tiles, and one
// that is no longer than a gap has KV tiles of only one work tile. If all work tiles have the same size, gaps
// can be chosen such that CTA ranges end where work tiles do.
struct KvPartition {
  int32_t cta_range;
  int32_t gap;
  bool exclusive = false;  // no CTA range has parts of two work tiles
};

// Parameters of a plan's partition.
struct PartitionRules {
  int32_t num_cta_ranges;
  int32_t min_cta_range;
  int32_t start_cost;  // of a work tile, in KV tiles; 0: no gaps
  int32_t merge_cost;  // of a work tile that spans several CTA ranges, in addition to the cost of its starts
};

// Work that is partitioned.
struct PartitionWork {
  int32_t num_kv_tiles;    // of all work tiles
  int32_t num_work_tiles;  // work tiles with KV tiles
  int32_t longest;         // maximum KV tiles of a work tile
};

ATTEND_HOST_DEVICE inline int32_t num_partition_units(const PartitionWork& work,
                                                      const KvPartition& partition) {
  return work.num_kv_tiles + (work.num_work_tiles > 1 ? partition.gap * (work.num_work_tiles - 1) : 0);
}

// Returns the partition of a single work tile: all CTA ranges have equal parts, or one has everything if a
// merge costs more.
ATTEND_HOST_DEVICE inline KvPartition partition_single_tile(const PartitionRules& rules,
                                                            int32_t num_kv_tiles) {
  const int32_t share = (num_kv_tiles + rules.num_cta_ranges - 1) / rules.num_cta_ranges;
  const int32_t least = rules.min_cta_range < 1 ? 1 : rules.min_cta_range;
  const int32_t range = share < least ? least : share;
  if (num_kv_tiles > range + rules.merge_cost) return {range, 0, true};
  return {num_kv_tiles < least ? least : num_kv_tiles, 0, true};
}

// Returns the partition with the smallest maximum cost of a CTA range: either with equal ranges or, if all
// work tiles have the same size and this costs little more, with ranges aligned to work tiles, since a work
// tile in a single CTA needs no merge.
ATTEND_HOST_DEVICE inline KvPartition partition_kv_tiles(const PartitionRules& rules,
                                                         const PartitionWork& work) {
  // A partition aligned with work tiles may cost 1 / kAlignmentSlack more than the uniform one.
  constexpr int32_t kAlignmentSlack = 32;
  // Division of non-negative values. Unsigned divisions are faster, which matters for CTAs that derive their
  // plan.
  const auto quotient = [](int32_t value, int32_t divisor) -> int32_t {
    if (divisor == 1) return value;
    return static_cast<int32_t>(static_cast<uint32_t>(value) / static_cast<uint32_t>(divisor));
  };
  const auto quotient_up = [&](int32_t value, int32_t divisor) -> int32_t {
    return value <= divisor ? (value > 0 ? 1 : 0) : quotient(value + divisor - 1, divisor);
  };
  const auto maximum = [](int32_t value, int32_t least) { return value < least ? least : value; };
  const int32_t start = rules.start_cost, num_ranges = rules.num_cta_ranges;
  const int32_t min_range = maximum(rules.min_cta_range, 1);
  if (work.num_work_tiles == 1) return partition_single_tile(rules, work.longest);
  if (num_ranges == 1) return {maximum(num_partition_units(work, {1, start}), min_range), start};
  const KvPartition uniform{
      maximum(quotient_up(num_partition_units(work, {1, start}), num_ranges), min_range), start};
  const int32_t num_work_tiles = work.num_work_tiles, longest = work.longest;
  if (num_work_tiles == 0 || int64_t{longest} * num_work_tiles != work.num_kv_tiles) return uniform;
  KvPartition aligned;
  int32_t cost;  // including the start of the range
  if (num_work_tiles <= num_ranges) {
    aligned.cta_range = maximum(quotient_up(longest, quotient(num_ranges, num_work_tiles)), min_range);
    if (longest <= aligned.cta_range + rules.merge_cost) aligned.cta_range = maximum(longest, min_range);
    aligned.gap = quotient_up(longest, aligned.cta_range) * aligned.cta_range - longest;
    aligned.exclusive = start > 0;
    cost = aligned.cta_range + start;
  } else {
    aligned.cta_range = quotient_up(num_work_tiles, num_ranges) * (longest + start);
    aligned.gap = start;
    cost = aligned.cta_range;
  }
  if (start == 0) aligned.gap = 0;
  const int32_t uniform_cost = uniform.cta_range + start;
  // Equal ranges need more merges.
  const int32_t slack = uniform_cost / kAlignmentSlack + rules.merge_cost + rules.merge_cost / 2;
  return cost <= uniform_cost + slack ? aligned : uniform;
}

// Consecutive work tiles of `num_kv_tiles` each.
struct UniformWorkTiles {
  int32_t begin;  // first unit of the first work tile
  int32_t num_kv_tiles;
};

// Start of a CTA range. `length`: units from there to the end of the range; below 1 if the range has no KV
// tiles.
struct CtaRangeStart {
  int32_t work_tile;  // index among the uniform work tiles
  int32_t kv_tile;    // in the work tile
  int32_t length;
};

// Returns the start of a CTA range that starts within the work tiles or in the gap before them: a gap belongs
// to the following work tile. `end`: end of the partition.
ATTEND_HOST_DEVICE inline CtaRangeStart range_start(const KvPartition& partition, int32_t end,
                                                    const UniformWorkTiles& work_tiles, int32_t cta_range) {
  const int32_t begin = cta_range * partition.cta_range, pitch = work_tiles.num_kv_tiles + partition.gap;
  const int32_t offset_after_gap = begin - work_tiles.begin + partition.gap,
                work_tile = offset_after_gap < pitch ? 0 : offset_after_gap / pitch;
  const int32_t in_work_tile = begin - work_tiles.begin - work_tile * pitch;
  const int32_t range_end = begin + partition.cta_range < end ? begin + partition.cta_range : end;
  if (in_work_tile >= 0) return {work_tile, in_work_tile, range_end - begin};
  return {work_tile, 0, range_end - begin + in_work_tile};
}

// CTA ranges that a work tile spans.
struct CtaRangeSpan {
  int32_t first_cta_range;
  int32_t count;
};
ATTEND_HOST_DEVICE inline CtaRangeSpan cta_ranges_of_tile(const KvPartition& partition, int32_t begin,
                                                          int32_t num_kv_tiles) {
  const int32_t first = begin / partition.cta_range;
  return {first, (begin + num_kv_tiles - 1) / partition.cta_range - first + 1};
}

}  // namespace attend::kernels::cuda
