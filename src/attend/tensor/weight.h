// Weight: a matrix as it is stored, in the format of its checkpoint; Linear: a weight and its bias.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// How the elements of a weight are stored. Every GEMM takes every format, by a fast kernel or by a correct
// one.
//
// The others hold codes q, and a scale of each group of group_outs x group_ins neighboring elements, whose
// last groups may be smaller. Where group_outs is not 1, and in 8 bits, scales are f32.
enum class WeightFormat : uint8_t {
  kPlain,  // data holds them: f32, f16 or bf16 [out_features, in_features], contiguous; no scales
  // w = q * scale. data: fp8_e4m3 [out_features, in_features], contiguous, without NaN. A group of all is a
  // scale per tensor, one of an output feature a scale per channel; else group_ins is a multiple of 16.
  kFp8,
  // w = q * scale. data: int8 [out_features, in_features], contiguous; groups as of kFp8.
  kInt8,
  // w = (q - zero) * scale. data: u8 [out_features, in_features / 2], contiguous: of two neighboring inputs
  // the first one's 4 bits are the lower ones. group_outs is 1, group_ins a multiple of 32 that divides
  // in_features. scales: f32, f16 or bf16. zeros: u8 of their shape; empty: 8.
  kInt4,
  // w = e2m1(q) * 2^(scale - 127): as kInt4 with q = sign, two bits of exponent, one of mantissa; scales: u8
  // below 255, group_ins 32.
  kMxFp4,
};
// "plain", "fp8", "int8", "int4", "mxfp4"
std::string_view to_string(WeightFormat format);
// Formats of 8 bits have codes and scales in the same places.
constexpr bool has_eight_bits(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kInt8;
}
// Formats of 4 bits have two elements in a byte.
inline bool has_four_bits(WeightFormat format) {
  return format == WeightFormat::kInt4 || format == WeightFormat::kMxFp4;
}

// Axis by which ranks divide a weight. kOutFeatures (column parallel): each rank computes some of the
// outputs. kInFeatures (row parallel): each rank computes a partial sum of all outputs, and the sum over
// ranks is y.
enum class ShardAxis : uint8_t { kNone, kOutFeatures, kInFeatures };

// Views: whoever made the weight owns its memory. Cheap to copy.
struct Weight {
  TensorView data = {};
  WeightFormat format = WeightFormat::kPlain;
  TensorView scales = {};  // [ceil(out_features / group_outs), ceil(in_features / group_ins)]; plain: empty
  TensorView zeros = {};   // as the format says; empty: it has none
  // Column i multiplies input_order[i]: i32 [in_features], a permutation. Empty: input i. Formats of 4 bits.
  TensorView input_order = {};
  int64_t group_outs = 0, group_ins = 0;
  // Axis by which this weight is one rank's part, the whole of it where there is one rank. kNone: every rank
  // has the same weight.
  ShardAxis shard = ShardAxis::kNone;

  Weight() = default;
  // Elements as they are: a matrix is used where a weight is asked for.
  template <class Matrix>
  requires std::convertible_to<const Matrix&, TensorView> Weight(const Matrix& elements)
      : data(elements) {}  // NOLINT

  bool empty() const { return data.empty(); }
  int64_t out_features() const { return data.shape[0]; }
  int64_t in_features() const { return has_four_bits(format) ? 2 * data.shape[1] : data.shape[1]; }
  // Output features [begin, end). `begin` is the first of a group.
  Weight rows(int64_t begin, int64_t end) const;
  // Of what is stored: elements, scales, zeros and order.
  size_t num_bytes() const;
};

// "bfloat16[4096, 4096] on cuda:0", "int4 weight[4096, 4096], groups of 1 x 128"
std::ostream& operator<<(std::ostream& out, const Weight& weight);

// y = W x + b.
struct Linear {
  Weight weight = {};
  TensorView bias = {};  // [out_features]; empty: none
};

}  // namespace attend
#pragma GCC visibility pop
