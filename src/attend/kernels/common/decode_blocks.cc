#include "attend/kernels/common/decode_blocks.h"

#include <cstring>

#include "attend/kernels/common/block_unit.h"

namespace attend::kernels {
namespace {

bool is_finite_half(const uint8_t* p) {
  constexpr uint16_t kExponent = 0x7c00;
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return (half & kExponent) != kExponent;
}

template <BlockFormat kFormat>
struct ElementDecoder {
  static void run(const uint8_t* row, int64_t first_unit, int num_units, float* to) {
    BlockUnit unit;
    for (int u = 0; u < num_units; ++u, to += kUnitElements) {
      decode_row_unit<kFormat, FiniteHalf>(row, first_unit + u, unit);
      for (int i = 0; i < kUnitElements; ++i) {
        float code = unit.codes[i];
        if constexpr (kTable<kFormat> != nullptr) code = kTable<kFormat>[unit.codes[i]];
        to[i] = code * unit.scales[i / kHalfUnit] - unit.minima[i / kHalfUnit];
      }
    }
  }
};

// Offset of a block's first scale, and number of consecutive ones; 0: none that could be infinite.
struct ScalePosition {
  int offset, count;
};

ScalePosition scale_position(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ4_0:
    case BlockFormat::kQ5_0:
    case BlockFormat::kQ8_0:
    case BlockFormat::kIq4Nl:
    case BlockFormat::kIq4Xs:
      return {0, 1};
    case BlockFormat::kQ4_1:
    case BlockFormat::kQ5_1:
    case BlockFormat::kQ4K:
    case BlockFormat::kQ5K:
      return {0, 2};
    case BlockFormat::kQ2K:
      return {80, 2};
    case BlockFormat::kQ3K:
      return {108, 1};
    case BlockFormat::kQ6K:
      return {208, 1};
    case BlockFormat::kMxFp4:
      break;
  }
  return {0, 0};
}

}  // namespace

void decode_blocks(BlockFormat format, const uint8_t* blocks, int64_t num_elements, float* to) {
  run_decoder<ElementDecoder>(format)(blocks, 0, static_cast<int>(num_elements / kUnitElements), to);
}

bool has_finite_scales(BlockFormat format, const uint8_t* block) {
  const auto [offset, count] = scale_position(format);
  for (int i = 0; i < count; ++i)
    if (!is_finite_half(block + offset + 2 * i)) return false;
  return true;
}

}  // namespace attend::kernels
