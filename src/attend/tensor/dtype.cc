#include "attend/tensor/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

#include "attend/base/error.h"

namespace attend {
namespace {

// Converts to a binary float with `kMantissa` mantissa bits, exponent bias `kBias` and largest finite bit
// pattern kMaxFinite. Conversions of all narrow types use these two functions.
template <int kMantissa, int kBias, uint32_t kMaxFinite, uint32_t kSignBit>
uint32_t narrow(float value, uint32_t overflow, uint32_t nan) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 31) ? kSignBit : 0;
  if (std::isnan(value)) return sign | nan;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude == 0) return sign;
  int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t mantissa = magnitude & 0x7fffffu;
  if ((magnitude >> 23) != 0)
    mantissa |= 0x800000u;
  else
    exponent = -126;
  // Number of bits to drop: 23 - kMantissa, and one more for each step below the smallest normal exponent.
  int drop = 23 - kMantissa;
  if (exponent < 1 - kBias) drop += (1 - kBias) - exponent;
  if (drop > 25) return sign;
  const uint32_t kept = mantissa >> drop;
  const uint32_t rest = mantissa & ((1u << drop) - 1);
  const uint32_t half = 1u << (drop - 1);
  uint32_t rounded = kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
  // The implicit bit carries into the exponent field.
  if (exponent >= 1 - kBias) rounded += static_cast<uint32_t>(exponent + kBias - 1) << kMantissa;
  return sign | (rounded > kMaxFinite ? overflow : rounded);
}

// Returns 2^exponent, for normal numbers.
float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

template <int kMantissa, int kBias>
float widen(uint32_t magnitude, bool negative) {
  const uint32_t exponent = magnitude >> kMantissa;
  const float fraction = static_cast<float>(magnitude & ((1u << kMantissa) - 1));
  // Products with a power of two are exact: every value of a narrow type is a normal float32.
  const float value = exponent == 0 ? fraction * power_of_two(1 - kBias - kMantissa)
                                    : (fraction + static_cast<float>(1u << kMantissa)) *
                                          power_of_two(static_cast<int>(exponent) - kBias - kMantissa);
  return negative ? -value : value;
}

float infinity_or_nan(uint32_t mantissa, bool negative) {
  if (mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
  return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
}

}  // namespace

F16::F16(float value) : bits(static_cast<uint16_t>(narrow<10, 15, 0x7bff, 0x8000>(value, 0x7c00, 0x7e00))) {}
F16::operator float() const {
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return infinity_or_nan(magnitude & 0x3ffu, bits >> 15);
  return widen<10, 15>(magnitude, bits >> 15);
}

BF16::BF16(float value) {
  const uint32_t wide = std::bit_cast<uint32_t>(value);
  // Rounds to nearest even by adding just under half and the lowest kept bit. A NaN keeps a mantissa bit.
  bits = std::isnan(value) ? static_cast<uint16_t>((wide >> 16) | 0x40)
                           : static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1)) >> 16);
}
BF16::operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

F8E4M3::F8E4M3(float value) : bits(static_cast<uint8_t>(narrow<3, 7, 0x7e, 0x80>(value, 0x7e, 0x7f))) {}
F8E4M3::operator float() const {
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
  return widen<3, 7>(magnitude, bits >> 7);
}

F8E5M2::F8E5M2(float value) : bits(static_cast<uint8_t>(narrow<2, 15, 0x7b, 0x80>(value, 0x7b, 0x7e))) {}
F8E5M2::operator float() const {
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude >= 0x7cu) return infinity_or_nan(magnitude & 0x3u, bits >> 7);
  return widen<2, 15>(magnitude, bits >> 7);
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF8E4M3:
      return "fp8_e4m3";
    case DType::kF8E5M2:
      return "fp8_e5m2";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kU8:
      return "uint8";
    case DType::kU64:
      return "uint64";
    case DType::kI8:
      return "int8";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
    case DType::kU64:
      return 8;
  }
  return 0;
}

bool is_fp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }
bool is_float(DType dtype) { return dtype <= DType::kF8E5M2; }

DType parse_dtype(std::string_view name, std::string_view argument) {
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  static constexpr Alias kAliases[] = {
      {"float32", DType::kF32},        {"f32", DType::kF32},
      {"fp32", DType::kF32},           {"float", DType::kF32},
      {"float16", DType::kF16},        {"f16", DType::kF16},
      {"fp16", DType::kF16},           {"half", DType::kF16},
      {"bfloat16", DType::kBF16},      {"bf16", DType::kBF16},
      {"fp8_e4m3", DType::kF8E4M3},    {"fp8", DType::kF8E4M3},
      {"e4m3", DType::kF8E4M3},        {"float8_e4m3fn", DType::kF8E4M3},
      {"fp8_e5m2", DType::kF8E5M2},    {"e5m2", DType::kF8E5M2},
      {"float8_e5m2", DType::kF8E5M2},
  };
  for (const Alias& alias : kAliases)
    if (alias.name == name) return alias.dtype;
  fail(ErrorCode::kInvalidArgument, argument, " '", name,
       "': expected float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
}

}  // namespace attend
