// Rows of a weight in a block format of GGUF. Runs of elements are decoded to float32 in the L1 cache by one
// call per run, which keeps the number of instances independent of the number of formats.
#pragma once

#include "attend/kernels/common/block_unit.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"
#include "attend/kernels/gemm/cpu/quantized_values.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kRunElements = 256;

template <class S>
struct VectorDecoder {
  template <BlockFormat kFormat>
  struct Run {
    static void run(const uint8_t* row, int64_t first_unit, int num_units, float* to) {
      BlockUnit unit;
      for (int u = 0; u < num_units; ++u, to += kUnitElements) {
        decode_row_unit<kFormat, HalfValue<S>>(row, first_unit + u, unit);
        for (int i = 0; i < kUnitElements; i += S::kLanes) {
          const int half = i / kHalfUnit;
          S::store(to + i, S::sub(S::mul(load_codes(unit.codes + i), S::set1(unit.scales[half])),
                                  S::set1(unit.minima[half])));
        }
      }
    }
    static typename S::F32 load_codes(const int8_t* codes) {
      if constexpr (kTable<kFormat> != nullptr)
        return TableValues<S>::load(codes, kTable<kFormat>);
      else
        return Int8Values<S>::load(codes);
    }
  };
};

// Rows are whole units of kUnitElements.
template <class S>
class BlockRows {
 public:
  using F32 = typename S::F32;
  static constexpr int kLineVectors = 4 * kUnitElements / S::kLanes;  // 66 to 136 bytes
  static constexpr bool kPlain = false;
  static constexpr bool kInOrder = true;

  explicit BlockRows(const LinearPart& part)
      : data_(static_cast<const uint8_t*>(part.weight)),
        in_features_(part.in_features),
        row_bytes_(weight_row_bytes(part)),
        layout_(block_layout(part.groups.block_format)),
        decode_(run_decoder<VectorDecoder<S>::template Run>(part.groups.block_format)) {}

  int64_t in_features() const { return in_features_; }
  // Decodes `count` elements from input i; both are multiples of kUnitElements.
  void decode(int64_t out, int64_t i, int count, float* to) const {
    decode_(data_ + out * row_bytes_, i / kUnitElements, count / kUnitElements, to);
  }
  [[gnu::always_inline]] void prefetch(int64_t out, int64_t i) const {
    __builtin_prefetch(data_ + out * row_bytes_ + i / layout_.elements * layout_.bytes, 0, 2);
  }

 private:
  const uint8_t* data_;
  int64_t in_features_, row_bytes_;
  BlockLayout layout_;
  DecodeRun decode_;
};

template <class Rows>
inline constexpr bool kDecodesRuns = false;
template <class S>
inline constexpr bool kDecodesRuns<BlockRows<S>> = true;

}  // namespace
}  // namespace attend::kernels::cpu
