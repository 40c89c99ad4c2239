// Rows of a weight, one class per format, that decode vectors of elements:
//
//   Scales scales(out)                     position of an output feature's scales
//   Group group(scales, g)                 data that the elements of its group g share
//   group_end(i)                           end of the group that starts at input i
//   kPlain                                 true if elements are floats, not quantized values
//   kGrouped                               true if the format has groups
//   load(out, i, group)                    kLanes elements from input i, in the format's order
//   load_first(out, i, n, group)           the first n of them, then zeros; not for 4 bits
//   load_x(row, i)                         the inputs that those elements multiply
//   load_in_order(out, i, n)               n consecutive elements of any group, then zeros
//   prefetch(out, i)                       prefetches the cache line of element i
//   kLineVectors                           vectors per cache line
//   kInOrder                               true if inputs are in the order of x
//   kBlockVectors                          vectors that are decoded together faster; 1: none
//   load_block(out, i, group, block), load_vector(block, j, group)
//                                          decodes a block of one group from input i; its vector j
//
// BlockRows (block_rows.h) decodes runs of elements to memory instead.
#pragma once

#include <cstring>

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/gemm/cpu/block_rows.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"
#include "attend/kernels/gemm/cpu/quantized_values.h"

namespace attend::kernels::cpu {
namespace {

template <class S, class T>
class PlainRows {
 public:
  using F32 = typename S::F32;
  struct Scales {};
  struct Group {};
  static constexpr int kLineVectors = 64 / static_cast<int>(S::kLanes * sizeof(T));
  static constexpr bool kPlain = true;
  static constexpr bool kGrouped = false;
  static constexpr bool kInOrder = true;
  static constexpr int kBlockVectors = 1;

  explicit PlainRows(const LinearPart& part)
      : data_(static_cast<const T*>(part.weight)), in_features_(part.in_features) {}

  int64_t in_features() const { return in_features_; }
  Scales scales(int64_t) const { return {}; }
  Group group(Scales, int64_t) const { return {}; }
  int64_t group_end(int64_t) const { return in_features_; }
  F32 load(int64_t out, int64_t i, Group) const { return S::load(at(out, i)); }
  F32 load_first(int64_t out, int64_t i, int n, Group) const { return S::load_first(at(out, i), n); }
  F32 load_x(const float* row, int64_t i) const { return S::load(row + i); }
  F32 load_in_order(int64_t out, int64_t i, int n) const { return S::load_first(at(out, i), n); }
  [[gnu::always_inline]] void prefetch(int64_t out, int64_t i) const { __builtin_prefetch(at(out, i), 0, 2); }

 private:
  const T* at(int64_t out, int64_t i) const { return data_ + out * in_features_ + i; }

  const T* data_;
  int64_t in_features_;
};

// One-byte values with scales per group of output features and group of inputs.
template <class S, class CodesOfByte>
class ByteRows {
 public:
  using F32 = typename S::F32;
  using Scales = const float*;
  using Group = F32;  // scale times the format's factor
  using Values = CodesOfByte;
  using Fp8Value = typename Values::Fp8Value;
  static constexpr int kLineVectors = 64 / S::kLanes;
  static constexpr bool kPlain = false;
  static constexpr bool kGrouped = true;
  static constexpr bool kInOrder = true;
  static constexpr int kBlockVectors = 1;

  explicit ByteRows(const LinearPart& part)
      : data_(static_cast<const Fp8Value*>(part.weight)),
        in_features_(part.in_features),
        groups_(part.groups) {}

  int64_t in_features() const { return in_features_; }
  Scales scales(int64_t out) const {
    const int64_t row = (groups_.first_out + out) / groups_.group_outs;
    return static_cast<const float*>(groups_.scales) + row * groups_.num_groups;
  }
  Group group(Scales scales, int64_t g) const { return S::set1(scales[g] * Values::kFactor); }
  int64_t group_end(int64_t i) const {
    const int64_t end = i + groups_.group_ins;
    return end < in_features_ ? end : in_features_;
  }
  F32 load(int64_t out, int64_t i, Group scale) const { return S::mul(Values::load(at(out, i)), scale); }
  F32 load_first(int64_t out, int64_t i, int n, Group scale) const {
    Fp8Value codes[S::kLanes] = {};
    std::memcpy(static_cast<void*>(codes), at(out, i), static_cast<size_t>(n));
    return S::mul(Values::load(codes), scale);
  }
  F32 load_x(const float* row, int64_t i) const { return S::load(row + i); }
  F32 load_in_order(int64_t out, int64_t i, int n) const {
    const Group scale = group(scales(out), i / groups_.group_ins);
    return n == S::kLanes ? load(out, i, scale) : load_first(out, i, n, scale);
  }
  [[gnu::always_inline]] void prefetch(int64_t out, int64_t i) const { __builtin_prefetch(at(out, i), 0, 2); }

 private:
  const Fp8Value* at(int64_t out, int64_t i) const { return data_ + out * in_features_ + i; }

  const Fp8Value* data_;
  int64_t in_features_;
  const WeightGroups groups_;
};

// kBlockVectors of an instruction set's decoder.
template <class Values>
constexpr int block_vectors() {
  if constexpr (requires { Values::kBlockVectors; }) return Values::kBlockVectors;
  return 1;
}

// 4-bit values, decoded through a table of the 16 values of their group.
template <class S, bool kReordered>
class FourBitRows {
 public:
  using F32 = typename S::F32;
  using Values = Int4Decoder<S>;
  using Scales = int64_t;  // index of the first scale
  using Group = typename Values::Table;
  static constexpr int kLineVectors = 128 / S::kLanes;
  static constexpr bool kPlain = false;
  static constexpr bool kGrouped = true;
  static constexpr bool kInOrder = !kReordered;
  static constexpr int kBlockVectors = block_vectors<Values>();

  explicit FourBitRows(const LinearPart& part)
      : data_(static_cast<const uint8_t*>(part.weight)),
        in_features_(part.in_features),
        groups_(part.groups) {}

  int64_t in_features() const { return in_features_; }
  Scales scales(int64_t out) const { return (groups_.first_out + out) * groups_.num_groups; }
  Group group(Scales scales, int64_t g) const {
    const int64_t group = scales + g;
    const F32 scale = scale_at(group);
    if (groups_.format == WeightFormat::kMxFp4) return Values::e2m1(scale);
    return Values::int4(groups_.zeros == nullptr ? uint8_t{8} : groups_.zeros[group], scale);
  }
  int64_t group_end(int64_t i) const { return i + groups_.group_ins; }
  F32 load(int64_t out, int64_t i, const Group& group) const { return Values::look_up(at(out, i), group); }
  F32 load_first(int64_t, int64_t, int, const Group&) const { return S::zero(); }
  template <class Block>
  void load_block(int64_t out, int64_t i, const Group& group, Block& block) const {
    Values::load_block(at(out, i), group, block);
  }
  template <class Block>
  F32 load_vector(const Block& block, int j, const Group& group) const {
    return Values::load_vector(block, j, group);
  }
  F32 load_x(const float* row, int64_t i) const {
    if constexpr (kReordered) return Values::to_packed_order(Values::gather(row, groups_.input_order + i));
    return Values::to_packed_order(S::load(row + i));
  }
  // Groups, and so input ranges, are whole vectors.
  F32 load_in_order(int64_t out, int64_t i, int) const {
    return Values::from_packed_order(load(out, i, group(scales(out), i / groups_.group_ins)));
  }
  [[gnu::always_inline]] void prefetch(int64_t out, int64_t i) const { __builtin_prefetch(at(out, i), 0, 2); }

 private:
  const uint8_t* at(int64_t out, int64_t i) const { return data_ + (out * in_features_ + i) / 2; }
  F32 scale_at(int64_t group) const {
    switch (groups_.scale_dtype) {
      case DType::kF32:
        return S::set1(static_cast<const float*>(groups_.scales)[group]);
      case DType::kBF16:
        return S::set1(widened(static_cast<const BF16*>(groups_.scales)[group]));
      case DType::kF16:
        return Values::broadcast(static_cast<const F16*>(groups_.scales)[group]);
      default:
        return S::set1(power_of_two(static_cast<const uint8_t*>(groups_.scales)[group]));
    }
  }

  const uint8_t* data_;
  int64_t in_features_;
  const WeightGroups groups_;
};

// Calls fn with the row class of the weight's format.
template <class S, class Fn>
void visit_rows(const LinearPart& part, const Fn& fn) {
  switch (part.groups.format) {
    case WeightFormat::kPlain:
      return visit_weight(part.weight, part.weight_dtype,
                          [&]<class T>(const T*) { fn(TypeTag<PlainRows<S, T>>{}); });
    case WeightFormat::kFp8:
      return fn(TypeTag<ByteRows<S, Fp8Values<S>>>{});
    case WeightFormat::kInt8:
      return fn(TypeTag<ByteRows<S, Int8Values<S>>>{});
    case WeightFormat::kInt4:
    case WeightFormat::kMxFp4:
      if (part.groups.input_order != nullptr) return fn(TypeTag<FourBitRows<S, true>>{});
      return fn(TypeTag<FourBitRows<S, false>>{});
    case WeightFormat::kBlocks:
      return fn(TypeTag<BlockRows<S>>{});
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
