// The line of work that the CTAs of a streamed plan divide: plain integers, on host and device.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda {

// KV tiles are units of the line. Those of a work tile lie next to one another, with `gap` units between work
// tiles. CTA range c is what lies in [c * cta_range, (c + 1) * cta_range).
//
// A gap stands for what the start of a work tile costs: a CTA range with a gap in it has fewer KV tiles, and
// one that is no longer than a gap has those of one work tile alone. Where all work tiles are alike, gaps are
// such that CTA ranges end where work tiles do.
struct KvPartition {
  int32_t cta_range;
  int32_t gap;
  bool exclusive = false;  // no CTA range has parts of two work tiles
};

// What a plan asks of its line.
struct PartitionRules {
  int32_t num_cta_ranges;
  int32_t min_cta_range;
  int32_t start_cost;  // of a work tile, in KV tiles; 0: no gaps
  int32_t merge_cost;  // of a work tile that lies in several CTA ranges, beyond what its starts cost
};

// What lies on the line.
struct PartitionWork {
  int32_t num_kv_tiles;    // of all work tiles
  int32_t num_work_tiles;  // with KV tiles
  int32_t longest;         // KV tiles of a work tile at most
};

ATTEND_HOST_DEVICE inline int32_t num_partition_units(const PartitionWork& work,
                                                      const KvPartition& partition) {
  return work.num_kv_tiles + (work.num_work_tiles > 1 ? partition.gap * (work.num_work_tiles - 1) : 0);
}

// A line with one work tile: as many equal CTA ranges as there are, or one where a merge costs more.
ATTEND_HOST_DEVICE inline KvPartition partition_single_tile(const PartitionRules& rules,
                                                            int32_t num_kv_tiles) {
  const int32_t share = (num_kv_tiles + rules.num_cta_ranges - 1) / rules.num_cta_ranges;
  const int32_t least = rules.min_cta_range < 1 ? 1 : rules.min_cta_range;
  const int32_t range = share < least ? least : share;
  if (num_kv_tiles > range + rules.merge_cost) return {range, 0, true};
  return {num_kv_tiles < least ? least : num_kv_tiles, 0, true};
}

// The line whose most expensive CTA range costs least: one that is cut into equal ranges or, where all work
// tiles are alike and that costs little more, one whose work tiles end with CTA ranges, since what lies in
// one CTA alone needs no merge.
ATTEND_HOST_DEVICE inline KvPartition partition_kv_tiles(const PartitionRules& rules,
                                                         const PartitionWork& work) {
  // What ends with work tiles may cost 1 / kAlignmentSlack more.
  constexpr int32_t kAlignmentSlack = 32;
  // Of values that are not below 0. Divisions take time, unsigned ones less, which a CTA that derives its
  // plan has not.
  const auto quotient = [](int32_t value, int32_t divisor) -> int32_t {
    if (divisor == 1) return value;
    return static_cast<int32_t>(static_cast<uint32_t>(value) / static_cast<uint32_t>(divisor));
  };
  const auto quotient_up = [&](int32_t value, int32_t divisor) -> int32_t {
    return value <= divisor ? (value > 0 ? 1 : 0) : quotient(value + divisor - 1, divisor);
  };
  const auto max_of = [](int32_t value, int32_t least) { return value < least ? least : value; };
  const int32_t start = rules.start_cost, num_ranges = rules.num_cta_ranges;
  const int32_t min_range = max_of(rules.min_cta_range, 1);
  if (work.num_work_tiles == 1) return partition_single_tile(rules, work.longest);
  if (num_ranges == 1) return {max_of(num_partition_units(work, {1, start}), min_range), start};
  const KvPartition uniform{max_of(quotient_up(num_partition_units(work, {1, start}), num_ranges), min_range),
                            start};
  const int32_t num_work_tiles = work.num_work_tiles, longest = work.longest;
  if (num_work_tiles == 0 || int64_t{longest} * num_work_tiles != work.num_kv_tiles) return uniform;
  KvPartition aligned;
  int32_t cost;  // the start of the range among it
  if (num_work_tiles <= num_ranges) {
    aligned.cta_range = max_of(quotient_up(longest, quotient(num_ranges, num_work_tiles)), min_range);
    if (longest <= aligned.cta_range + rules.merge_cost) aligned.cta_range = max_of(longest, min_range);
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
  // Equal ranges have the more to merge.
  const int32_t slack = uniform_cost / kAlignmentSlack + rules.merge_cost + rules.merge_cost / 2;
  return cost <= uniform_cost + slack ? aligned : uniform;
}

// Work tiles of `num_kv_tiles` each, one behind another.
struct UniformWorkTiles {
  int32_t begin;  // of the first on the line
  int32_t num_kv_tiles;
};

// Where a CTA range begins. `length`: of the line from there to the range's end; below 1 where no KV tile
// lies in the range.
struct CtaRangeStart {
  int32_t work_tile;  // of the alike ones
  int32_t kv_tile;    // of the work tile
  int32_t length;
};

// Of a CTA range whose begin lies among the work tiles or in the gap before them: a gap belongs to the work
// tile behind it. `end`: of the line.
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

// The CTA ranges that a work tile lies in.
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
