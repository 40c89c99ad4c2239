// Block formats of GGUF files: consecutive bytes with the quantized values and the scales of 32 or 256
// neighboring inputs.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

enum class BlockFormat : uint8_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxFp4
};

struct BlockLayout {
  std::string_view name;  // "Q4_K"
  int elements, bytes;    // of a block
};

constexpr BlockLayout block_layout(BlockFormat format) {
  constexpr BlockLayout kLayouts[] = {
      {"Q4_0", 32, 18},   {"Q4_1", 32, 20},     {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"Q8_0", 32, 34},
      {"Q2_K", 256, 84},  {"Q3_K", 256, 110},   {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
      {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17}};
  return kLayouts[static_cast<int>(format)];
}

}  // namespace attend
#pragma GCC visibility pop
