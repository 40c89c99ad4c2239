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
enum class WeightFormat : uint8_t {
  kPlain,  // data holds them: f32, f16 or bf16 [out_features, in_features], contiguous; no scales
};
std::string_view to_string(WeightFormat format);

// Which part of a weight one rank of several holds. With kInFeatures each rank's product is a partial sum.
enum class ShardAxis : uint8_t { kNone, kOutFeatures, kInFeatures };

// Views: whoever made the weight owns its memory. Cheap to copy.
struct Weight {
  TensorView data = {};
  WeightFormat format = WeightFormat::kPlain;
  TensorView scales = {};  // as the format says; empty: it has none
  ShardAxis shard = ShardAxis::kNone;

  Weight() = default;
  // Elements as they are: a matrix is used where a weight is asked for.
  template <class Matrix>
  requires std::convertible_to<const Matrix&, TensorView> Weight(const Matrix& elements)
      : data(elements) {}  // NOLINT

  bool empty() const { return data.empty(); }
  int64_t out_features() const { return data.shape[0]; }
  int64_t in_features() const { return data.shape[1]; }
  // Of what is stored, scales included.
  size_t num_bytes() const { return data.num_bytes() + (scales.empty() ? 0 : scales.num_bytes()); }
};

// "bfloat16[4096, 4096] on cuda:0"
std::ostream& operator<<(std::ostream& out, const Weight& weight);

// y = W x + b.
struct Linear {
  Weight weight = {};
  TensorView bias = {};  // [out_features]; empty: none
};

}  // namespace attend
#pragma GCC visibility pop
