// Weights as the tiles of linear_amx.cc multiply them: blocks of bf16 parts.
//
// Where weights lie, output features are often a power of two apart: used in place, they would push one
// another out of the caches.
#pragma once

#include "attend/kernels/cpu/amx_parts.h"
#include "attend/kernels/cpu/linear_tiles.h"

namespace attend::kernels::cpu {
namespace {

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// kPairOuts output features by kTileBlockFeatures input features. What lies beyond the matrix's last output
// feature is anything.
template <class T>
struct WeightBlock {
  alignas(64) uint16_t parts[kNumParts<T>][kPairOuts][kTileBlockFeatures];
};

// The block of `part` at an output and an input feature, to be copied bit by bit; none beyond the matrix.
template <class T>
class BlockCopy {
 public:
  BlockCopy() = default;
  BlockCopy(const LinearPart& part, int64_t out, int64_t feature, WeightBlock<T>& block)
      : weight_(static_cast<const T*>(part.weight) + out * part.in_features + feature),
        stride_(part.in_features),
        num_outs_(feature < part.in_features ? least(part.num_outs - out, kPairOuts) : 0),
        num_features_(least(part.in_features - feature, kTileBlockFeatures)),
        block_(&block) {}

  // The output features [begin, end) of the block.
  void copy(int64_t begin, int64_t end) const {
    for (int64_t o = begin; o < least(end, num_outs_); ++o) {
      const T* const row = weight_ + o * stride_;
      int64_t i = 0;
      for (; i + kTileSteps <= num_features_; i += kTileSteps)
        store(o, i, [&](auto& parts) { reader_.read(row + i, parts); });
      if (i < num_features_)
        store(o, i,
              [&](auto& parts) { reader_.read_first(row + i, static_cast<int>(num_features_ - i), parts); });
    }
  }

 private:
  template <class Read>
  void store(int64_t out, int64_t feature, const Read& read) const {
    Pairs parts[kNumParts<T>];
    read(parts);
    for (int p = 0; p < kNumParts<T>; ++p) _mm512_store_si512(&block_->parts[p][out][feature], parts[p]);
  }

  const T* weight_ = nullptr;
  int64_t stride_ = 0, num_outs_ = 0, num_features_ = 0;
  WeightBlock<T>* block_ = nullptr;
  PartsReader<T> reader_;
};

}  // namespace
}  // namespace attend::kernels::cpu
