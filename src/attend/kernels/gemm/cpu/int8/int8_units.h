// Runs of a weight, decoded to signed codes with float32 scales: every format that has int8 products.
#pragma once

#include <cstring>

#include "attend/kernels/common/block_unit.h"
#include "attend/kernels/gemm/cpu/int8/int8_linear.h"
#include "attend/kernels/gemm/cpu/quantized_values.h"

namespace attend::kernels::cpu {
namespace {

// Element i of unit u is codes[u][i] * scales[h][u] - minima[h][u], h = i / 16. Missing units are 0.
struct DecodedRun {
  alignas(32) int8_t codes[kInt8RunUnits][kInt8UnitInputs];
  alignas(32) float scales[2][kInt8RunUnits], minima[2][kInt8RunUnits];
};

// Scale of a group of a 4-bit format.
inline float group_scale(const WeightGroups& groups, int64_t group) {
  switch (groups.scale_dtype) {
    case DType::kF32:
      return static_cast<const float*>(groups.scales)[group];
    case DType::kBF16:
      return widened(static_cast<const BF16*>(groups.scales)[group]);
    case DType::kF16:
      return FiniteHalf::load(static_cast<const uint8_t*>(groups.scales) + 2 * group);
    default:
      return half_power_of_two(static_cast<const uint8_t*>(groups.scales)[group]);
  }
}

// Calls fn(u, group) for `count` units of a run, with the index of each unit's scale.
template <class Fn>
void for_each_group(const LinearPart& part, int64_t out, int64_t run, int count, const Fn& fn) {
  const WeightGroups& groups = part.groups;
  const int64_t first = (groups.first_out + out) / groups.group_outs * groups.num_groups;
  int64_t group = run * kInt8RunInputs / groups.group_ins;
  int64_t left = (group + 1) * groups.group_ins - run * kInt8RunInputs;
  for (int u = 0; u < count; ++u, left -= kInt8UnitInputs) {
    if (left <= 0) {
      ++group;
      left += groups.group_ins;
    }
    fn(u, first + group);
  }
}

// Number of units of a run.
inline int run_units(const LinearPart& part, int64_t run) {
  const int64_t rest = part.in_features / kInt8UnitInputs - run * kInt8RunUnits;
  return rest < kInt8RunUnits ? static_cast<int>(rest) : kInt8RunUnits;
}

template <BlockFormat kFormat>
struct BlockRunDecoder {
  static void run(const uint8_t* row, int64_t first_unit, int num_units, DecodedRun& to) {
    BlockUnit unit;
    for (int u = 0; u < num_units; ++u) {
      decode_row_unit<kFormat, FiniteHalf>(row, first_unit + u, unit);
      if constexpr (kTable<kFormat> != nullptr)
        for (int8_t& code : unit.codes) code = static_cast<int8_t>(kTable<kFormat>[code]);
      std::memcpy(to.codes[u], unit.codes, sizeof unit.codes);
      for (int half = 0; half < 2; ++half) {
        to.scales[half][u] = unit.scales[half];
        to.minima[half][u] = unit.minima[half];
      }
    }
  }
};

inline void decode_groups(const LinearPart& part, int64_t out, int64_t run, int count, DecodedRun& to) {
  const WeightGroups& groups = part.groups;
  const int64_t first = out * part.in_features + run * kInt8RunInputs;
  for_each_group(part, out, run, count, [&](int u, int64_t group) {
    const int64_t at = first + u * kInt8UnitInputs;
    if (groups.format == WeightFormat::kInt8) {
      std::memcpy(to.codes[u], static_cast<const int8_t*>(part.weight) + at, kInt8UnitInputs);
    } else {
      const int zero = groups.format == WeightFormat::kMxFp4 ? 0
                       : groups.zeros == nullptr             ? 8
                                                             : groups.zeros[group];
      const uint8_t* const bytes = static_cast<const uint8_t*>(part.weight) + at / 2;
      for (int i = 0; i < kInt8UnitInputs; ++i) {
        const int code = bytes[i % kHalfUnit] >> (i / kHalfUnit * 4) & 15;
        to.codes[u][i] = static_cast<int8_t>(
            groups.format == WeightFormat::kMxFp4 ? static_cast<int>(kTwiceE2M1[code]) : code - zero);
      }
    }
    to.scales[0][u] = to.scales[1][u] = group_scale(groups, group);
    to.minima[0][u] = to.minima[1][u] = 0.0f;
  });
}

using DecodeBlockRun = void (*)(const uint8_t* row, int64_t first_unit, int num_units, DecodedRun& to);

inline DecodeBlockRun block_run_decoder(BlockFormat format) {
  return run_decoder<BlockRunDecoder, DecodeBlockRun>(format);
}

// Decodes a run; `decode` is the block format's, or null.
inline void decode_run(const LinearPart& part, DecodeBlockRun decode, int64_t row_bytes, int64_t out,
                       int64_t run, DecodedRun& to) {
  const int count = run_units(part, run);
  if (count < kInt8RunUnits) std::memset(static_cast<void*>(&to), 0, sizeof to);
  if (decode == nullptr) return decode_groups(part, out, run, count, to);
  decode(static_cast<const uint8_t*>(part.weight) + out * row_bytes, run * kInt8RunUnits, count, to);
}

}  // namespace
}  // namespace attend::kernels::cpu
