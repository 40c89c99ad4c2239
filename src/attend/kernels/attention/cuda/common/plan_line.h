// The line of work that the CTAs of a streamed plan divide: plain integers, on host and device.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda {

// KV tiles are units of the line. Those of a work tile lie next to one another, with a gap between work
// tiles. CTA range c is what lies in [c * cta_range, (c + 1) * cta_range).
//
// There are two kinds of lines:
//   even     gaps stand for what the start of a work tile costs: a CTA range with a gap in it has fewer KV
//            tiles, and one that is no longer than a gap has those of one work tile alone
//   aligned  work tiles begin `pitch` units apart, of which CTA ranges are a multiple or a part: each ends
//            where a work tile does, or divides one into equal parts. For work tiles that are about alike
struct PlanLine {
  int32_t cta_range;
  int32_t gap;    // even: between work tiles
  int32_t pitch;  // aligned: from one work tile to the next; 0: the line is even
};

// From the begin of a work tile with so many KV tiles to that of the next.
ATTEND_HOST_DEVICE inline int32_t pitch_of(const PlanLine& line, int32_t num_kv_tiles) {
  return line.pitch > 0 ? line.pitch : num_kv_tiles + line.gap;
}
// A gap of an even line belongs to the work tile behind it: where a CTA range begins there, it does so with
// that work tile.
ATTEND_HOST_DEVICE inline int32_t gap_before(const PlanLine& line) { return line.pitch > 0 ? 0 : line.gap; }

// What a plan asks of its line.
struct LineRules {
  int32_t num_cta_ranges;
  int32_t min_cta_range;
  int32_t start_cost;  // of a work tile, in KV tiles; 0: no gaps
};

// What lies on the line.
struct LineWork {
  int32_t num_kv_tiles;    // of all work tiles
  int32_t num_work_tiles;  // with KV tiles
  int32_t longest;         // KV tiles of a work tile at most
};

// Of the line, up to behind the last work tile's gap, of which what lies before a CTA range is left out.
ATTEND_HOST_DEVICE inline int32_t line_begin(const PlanLine& line, int32_t num_kv_tiles,
                                             int32_t num_work_tiles) {
  return line.pitch > 0 ? line.pitch * num_work_tiles : num_kv_tiles + line.gap * num_work_tiles;
}
ATTEND_HOST_DEVICE inline int32_t line_length(const LineWork& work, const PlanLine& line) {
  const int32_t length = line_begin(line, work.num_kv_tiles, work.num_work_tiles) - gap_before(line);
  return length < 0 ? 0 : length;
}

// The line whose most expensive CTA range costs least: an even one or, where that costs little more, an
// aligned one, since what lies in one CTA alone needs no merge.
ATTEND_HOST_DEVICE inline PlanLine plan_line(const LineRules& rules, const LineWork& work) {
  // An aligned line may cost 1 / kAlignmentSlack more.
  constexpr int32_t kAlignmentSlack = 32;
  const auto quotient_up = [](int32_t value, int32_t divisor) { return (value + divisor - 1) / divisor; };
  const auto at_least = [](int32_t value, int32_t least) { return value < least ? least : value; };
  const int32_t start = rules.start_cost, num_ranges = rules.num_cta_ranges;
  const int32_t min_range = at_least(rules.min_cta_range, 1);
  const PlanLine even{at_least(quotient_up(line_length(work, {1, start, 0}), num_ranges), min_range), start,
                      0};
  const int32_t num_work_tiles = work.num_work_tiles, longest = work.longest;
  if (num_work_tiles == 0) return even;
  PlanLine aligned{};
  int32_t cost;  // the start of the range among it
  if (num_work_tiles <= num_ranges) {
    aligned.cta_range = at_least(quotient_up(longest, num_ranges / num_work_tiles), min_range);
    aligned.pitch = quotient_up(longest, aligned.cta_range) * aligned.cta_range;
    cost = aligned.cta_range + start;
  } else {
    aligned.pitch = longest + start;
    aligned.cta_range = quotient_up(num_work_tiles, num_ranges) * aligned.pitch;
    cost = aligned.cta_range;
  }
  const int32_t even_cost = even.cta_range + start;
  if (cost > even_cost + even_cost / kAlignmentSlack) return even;
  // Without gaps, as KV tiles are numbered.
  if (start == 0) return {aligned.cta_range, 0, 0};
  return aligned;
}

// Work tiles of `num_kv_tiles` each, one behind another.
struct AlikeWorkTiles {
  int32_t begin;  // of the first on the line
  int32_t num_kv_tiles;
};

// Where a CTA range begins. `length`: of the line from there to the range's end; below 1 where no KV tile
// lies in the range.
struct RangeStart {
  int32_t work_tile;  // of the alike ones
  int32_t kv_tile;    // of the work tile
  int32_t length;
};

// Of a CTA range whose begin lies among the work tiles or in the gap before them. `end`: of the line.
ATTEND_HOST_DEVICE inline RangeStart range_start(const PlanLine& line, int32_t end,
                                                 const AlikeWorkTiles& work_tiles, int32_t cta_range) {
  const int32_t begin = cta_range * line.cta_range, pitch = pitch_of(line, work_tiles.num_kv_tiles);
  const int32_t work_tile = (begin - work_tiles.begin + gap_before(line)) / pitch;
  const int32_t in_work_tile = begin - work_tiles.begin - work_tile * pitch;
  const int32_t range_end = begin + line.cta_range < end ? begin + line.cta_range : end;
  if (in_work_tile < 0) return {work_tile, 0, range_end - begin + in_work_tile};
  // Of an aligned line, whose work tile is one of the shorter.
  if (in_work_tile >= work_tiles.num_kv_tiles) return {work_tile, 0, 0};
  return {work_tile, in_work_tile, range_end - begin};
}

// The CTA ranges that a work tile lies in.
struct LineParts {
  int32_t first_cta_range;
  int32_t count;
};
ATTEND_HOST_DEVICE inline LineParts parts_of(const PlanLine& line, int32_t begin, int32_t num_kv_tiles) {
  const int32_t first = begin / line.cta_range;
  return {first, (begin + num_kv_tiles - 1) / line.cta_range - first + 1};
}

}  // namespace attend::kernels::cuda
