// Weights in the block formats of GGUF files, for tests of products.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "attend/kernels/common/decode_blocks.h"
#include "attend/tensor/weight.h"

namespace attend::testing_support {

inline constexpr int kNumBlockFormats = static_cast<int>(BlockFormat::kMxFp4) + 1;

// Random blocks whose scales are finite and between 2^-14 and 2.
class BlockWeight {
 public:
  BlockWeight(BlockFormat format, int64_t num_outs, int64_t in_features)
      : bytes_(static_cast<size_t>(num_outs * in_features / block_layout(format).elements *
                                   block_layout(format).bytes)) {
    std::mt19937 random(static_cast<unsigned>(format) + 1);
    for (uint8_t& byte : bytes_) byte = static_cast<uint8_t>(random());
    const auto block_bytes = static_cast<size_t>(block_layout(format).bytes);
    for (size_t block = 0; block < bytes_.size(); block += block_bytes) {
      if (format == BlockFormat::kMxFp4) bytes_[block] = static_cast<uint8_t>(120 + random() % 8);
      // A byte of a scale that is not 0x7c to 0x7f has a finite exponent.
      while (!kernels::has_finite_scales(format, bytes_.data() + block) || !is_moderate(format, block))
        for (size_t i = 0; i < block_bytes; ++i) bytes_[block + i] = static_cast<uint8_t>(random());
    }
    view.format = WeightFormat::kBlocks;
    view.block_format = format;
    view.data = TensorView::contiguous(bytes_.data(), DType::kU8,
                                       {num_outs, static_cast<int64_t>(bytes_.size()) / num_outs});
  }

  // Sets the scales of all blocks to 1, so that elements are integers.
  void set_scales_to_one() {
    using enum BlockFormat;
    const BlockFormat format = view.block_format;
    const bool has_minimum =
        format == kQ4_1 || format == kQ5_1 || format == kQ2K || format == kQ4K || format == kQ5K;
    const size_t at = format == kQ2K ? 80 : format == kQ3K ? 108 : format == kQ6K ? 208 : 0;
    for (size_t block = 0; block < bytes_.size(); block += static_cast<size_t>(block_layout(format).bytes)) {
      if (format == kMxFp4) {
        bytes_[block] = 128;
        continue;
      }
      for (size_t i = 0; i < (has_minimum ? 2 : 1); ++i) {
        bytes_[block + at + 2 * i] = 0;
        bytes_[block + at + 2 * i + 1] = 0x3c;
      }
    }
  }

  Weight view;

 private:
  // Returns whether all elements are at most 1e6, so that sums do not lose small ones.
  bool is_moderate(BlockFormat format, size_t block) const {
    const int count = block_layout(format).elements;
    std::vector<float> elements(static_cast<size_t>(count));
    kernels::decode_blocks(format, bytes_.data() + block, count, elements.data());
    for (const float element : elements)
      if (!(std::abs(element) <= 1e6f)) return false;
    return true;
  }

  std::vector<uint8_t> bytes_;
};

inline void for_each_block_format(const std::function<void(BlockFormat)>& fn) {
  for (int i = 0; i < kNumBlockFormats; ++i) {
    SCOPED_TRACE(block_layout(static_cast<BlockFormat>(i)).name);
    fn(static_cast<BlockFormat>(i));
  }
}

}  // namespace attend::testing_support
