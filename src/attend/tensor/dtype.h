// Element types. The 16-bit and 8-bit floats are value types: reading is exact, writing rounds to nearest
// even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "attend/base/ids.h"

#pragma GCC visibility push(default)
namespace attend {

enum class DType : uint8_t { kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kI32, kI64, kU8, kU64, kI8 };

// Returns "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int32", ...
std::string_view to_string(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);
// Returns the bytes per element.
size_t size_of(DType dtype);
bool is_float(DType dtype);
bool is_fp8(DType dtype);
// Parses the names of to_string and common short ones (f32, fp32, half, f16, bf16, e4m3, ...). Throws
// Error(kInvalidArgument) with the argument's name and the accepted names.
DType parse_dtype(std::string_view name, std::string_view argument = "dtype");

// IEEE binary16.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value);
  explicit operator float() const;
  static constexpr F16 from_bits(uint16_t b) {
    F16 v;
    v.bits = b;
    return v;
  }
};

// Upper half of a binary32.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value);
  explicit operator float() const;
  static constexpr BF16 from_bits(uint16_t b) {
    BF16 v;
    v.bits = b;
    return v;
  }
};

// 8-bit floats of the OCP specification (OFP8). Writing saturates to the largest finite value (448 and
// 57344), like the conversion instructions of GPUs; NaN stays NaN. E4M3 has no infinity.
struct F8E4M3 {
  uint8_t bits = 0;
  F8E4M3() = default;
  explicit F8E4M3(float value);
  explicit operator float() const;
  static constexpr F8E4M3 from_bits(uint8_t b) {
    F8E4M3 v;
    v.bits = b;
    return v;
  }
};
struct F8E5M2 {
  uint8_t bits = 0;
  F8E5M2() = default;
  explicit F8E5M2(float value);
  explicit operator float() const;
  static constexpr F8E5M2 from_bits(uint8_t b) {
    F8E5M2 v;
    v.bits = b;
    return v;
  }
};

// DType of a C++ element type. A strong id is an int32.
template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<T, F16>)
    return DType::kF16;
  else if constexpr (std::is_same_v<T, BF16>)
    return DType::kBF16;
  else if constexpr (std::is_same_v<T, F8E4M3>)
    return DType::kF8E4M3;
  else if constexpr (std::is_same_v<T, F8E5M2>)
    return DType::kF8E5M2;
  else if constexpr (std::is_same_v<T, int32_t> || kIsId<T>)
    return DType::kI32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::kI64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::kU8;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return DType::kU64;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DType::kI8;
}();

template <class T>
struct TypeTag {
  using type = T;
};

// Calls fn(TypeTag<T>{}) with the C++ type of a float dtype. Returns false for another dtype.
template <class Fn>
bool visit_float_dtype(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      fn(TypeTag<float>{});
      return true;
    case DType::kF16:
      fn(TypeTag<F16>{});
      return true;
    case DType::kBF16:
      fn(TypeTag<BF16>{});
      return true;
    case DType::kF8E4M3:
      fn(TypeTag<F8E4M3>{});
      return true;
    case DType::kF8E5M2:
      fn(TypeTag<F8E5M2>{});
      return true;
    default:
      return false;
  }
}

}  // namespace attend
#pragma GCC visibility pop
