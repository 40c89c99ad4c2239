// Weight: a matrix as it is stored, in the format of its checkpoint; Linear: a weight and its bias.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "attend/tensor/block_format.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// Storage format of a weight's elements. Every GEMM supports every format, with a fast kernel or a generic
// one.
//
// Formats other than kPlain and kBlocks store codes q and a scale per group of group_outs x group_ins
// neighboring elements. The last groups may be smaller. Scales are f32 in 8-bit formats and if group_outs is
// not 1.
enum class WeightFormat : uint8_t {
  kPlain,  // data: f32, f16 or bf16 [out_features, in_features], contiguous; no scales
  // w = q * scale. data: fp8_e4m3 [out_features, in_features], contiguous, without NaN. A group is the whole
  // tensor (per-tensor scale), one output feature (per-channel scale), or a block with group_ins a multiple
  // of 16.
  kFp8,
  // w = q * scale. data: int8 [out_features, in_features], contiguous; groups as for kFp8.
  kInt8,
  // w = (q - zero) * scale. data: u8 [out_features, in_features / 2], contiguous: the low 4 bits are the
  // first of two neighboring inputs. group_outs is 1, group_ins a multiple of 32 that divides in_features.
  // scales: f32, f16 or bf16. zeros: u8 with the shape of scales; empty: 8.
  kInt4,
  // w = e2m1(q) * 2^(scale - 127). Layout of kInt4; q has a sign bit, two exponent bits and a mantissa bit.
  // scales: u8 below 255, group_ins is 32.
  kMxFp4,
  // data: u8 [out_features, bytes of the blocks of a row], contiguous: blocks of `block_format`, which
  // contain their scales. No groups.
  kBlocks,
};
// Returns "plain", "fp8", "int8", "int4", "mxfp4" or "blocks".
std::string_view to_string(WeightFormat format);
// 8-bit formats have the same layout of codes and scales.
constexpr bool has_eight_bits(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kInt8;
}
// 4-bit formats have two elements per byte.
inline bool has_four_bits(WeightFormat format) {
  return format == WeightFormat::kInt4 || format == WeightFormat::kMxFp4;
}

// Axis by which ranks divide a weight. kOutFeatures (column parallel): each rank computes some of the
// outputs. kInFeatures (row parallel): each rank computes a partial sum of all outputs, and the sum over
// ranks is y.
enum class ShardAxis : uint8_t { kNone, kOutFeatures, kInFeatures };

// Non-owning views of a weight's memory. Cheap to copy.
struct Weight {
  TensorView data = {};
  WeightFormat format = WeightFormat::kPlain;
  TensorView scales = {};  // [ceil(out_features / group_outs), ceil(in_features / group_ins)]; plain: empty
  TensorView zeros = {};   // see WeightFormat; empty: none
  // Column i multiplies input input_order[i]: i32 [in_features], a permutation. Empty: identity. 4-bit
  // formats only.
  TensorView input_order = {};
  int64_t group_outs = 0, group_ins = 0;
  BlockFormat block_format = BlockFormat::kQ4_0;  // kBlocks only
  // Axis along which this weight is one rank's shard; with one rank it is the whole weight. kNone: every rank
  // has the same weight.
  ShardAxis shard = ShardAxis::kNone;

  Weight() = default;
  // Converts a matrix of plain elements.
  template <class Matrix>
  requires std::convertible_to<const Matrix&, TensorView> Weight(const Matrix& elements)
      : data(elements) {}  // NOLINT

  bool empty() const { return data.empty(); }
  int64_t out_features() const { return data.shape[0]; }
  int64_t in_features() const {
    if (format == WeightFormat::kBlocks)
      return data.shape[1] / block_layout(block_format).bytes * block_layout(block_format).elements;
    return has_four_bits(format) ? 2 * data.shape[1] : data.shape[1];
  }
  // Returns output features [begin, end). `begin` is the first of a group.
  Weight rows(int64_t begin, int64_t end) const;
  // Bytes of elements, scales, zeros and input order.
  size_t num_bytes() const;
};

// Prints "bfloat16[4096, 4096] on cuda:0" or "int4 weight[4096, 4096], groups of 1 x 128".
std::ostream& operator<<(std::ostream& out, const Weight& weight);

// y = W x + b.
struct Linear {
  Weight weight = {};
  TensorView bias = {};  // [out_features]; empty: none
  // Index of the layer in the adapters of its model (kernels::LowRankAdapter); -1: adapters do not change it.
  int adapter_index = -1;
};

}  // namespace attend
#pragma GCC visibility pop
