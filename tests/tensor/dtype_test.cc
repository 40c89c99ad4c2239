// Conversions of narrow floats. To f32: every bit pattern. From f32: every representable value, every
// midpoint between two of them, the floats next to those, and a sweep through all binary32 patterns, compared
// with a search in the sorted table of representable values.
#include "attend/tensor/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/error_message.h"

namespace attend {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Parameters of a narrow float format.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity;  // the highest exponent encodes infinity and NaN; otherwise only the all-ones pattern is
                      // NaN
  bool saturates;     // overflow rounds to the largest finite value, otherwise to infinity

  int num_bits() const { return 1 + exponent_bits + mantissa_bits; }
  uint32_t num_patterns() const { return 1u << num_bits(); }
  uint32_t sign_bit() const { return 1u << (num_bits() - 1); }

  // IEEE 754, section 3.4, and OFP8, section 5.
  double decode(uint32_t bits) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t exponent_field = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    const double sign = bits & sign_bit() ? -1.0 : 1.0;
    const uint32_t all_ones = (1u << exponent_bits) - 1;
    if (has_infinity && exponent_field == all_ones)
      return mantissa == 0 ? sign * static_cast<double>(kInf) : static_cast<double>(kNaN);
    if (!has_infinity && exponent_field == all_ones && mantissa == (1u << mantissa_bits) - 1)
      return static_cast<double>(kNaN);
    const double unit = std::pow(2.0, -mantissa_bits);
    if (exponent_field == 0) return sign * std::pow(2.0, 1 - bias) * (mantissa * unit);
    return sign * std::pow(2.0, static_cast<int>(exponent_field) - bias) * (1.0 + mantissa * unit);
  }
};

struct F16Traits {
  using Type = F16;
  static constexpr Format kFormat{5, 10, true, false};
  static constexpr float kMaxFinite = 65504.0f;
};
struct BF16Traits {
  using Type = BF16;
  static constexpr Format kFormat{8, 7, true, false};
  static constexpr float kMaxFinite = 0x1.fep127f;
};
struct F8E4M3Traits {
  using Type = F8E4M3;
  static constexpr Format kFormat{4, 3, false, true};
  static constexpr float kMaxFinite = 448.0f;
};
struct F8E5M2Traits {
  using Type = F8E5M2;
  static constexpr Format kFormat{5, 2, true, true};
  static constexpr float kMaxFinite = 57344.0f;
};

template <class Traits>
class NarrowFloat : public testing::Test {
 protected:
  using Type = typename Traits::Type;
  static constexpr Format kFormat = Traits::kFormat;

  NarrowFloat() {
    for (uint32_t bits = 0; bits < kFormat.sign_bit() && std::isfinite(kFormat.decode(bits)); ++bits)
      magnitudes_.push_back(kFormat.decode(bits));
  }

  static Type from_bits(uint32_t bits) { return Type::from_bits(static_cast<decltype(Type::bits)>(bits)); }

  // Returns the pattern nearest to a finite or infinite value, ties to even. magnitudes_[i] is the value of
  // pattern i; the pattern after the last one represents the value that the next exponent would have.
  uint32_t nearest(float value) const {
    const uint32_t sign = std::signbit(value) ? kFormat.sign_bit() : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const double last = magnitudes_.back();
    const double beyond = last + (last - magnitudes_[magnitudes_.size() - 2]);
    const auto overflow =
        static_cast<uint32_t>(kFormat.saturates ? magnitudes_.size() - 1 : magnitudes_.size());
    if (magnitude >= beyond) return sign | overflow;
    const auto above = std::upper_bound(magnitudes_.begin(), magnitudes_.end(), magnitude);
    const auto low = static_cast<uint32_t>(above - magnitudes_.begin()) - 1;
    const double to_low = magnitude - magnitudes_[low];
    const double to_high = (above == magnitudes_.end() ? beyond : *above) - magnitude;
    const uint32_t found = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : low + 1;
    return sign | (found == magnitudes_.size() ? overflow : found);
  }

  void expect_nearest(float value) const {
    ASSERT_EQ(uint32_t{Type(value).bits}, nearest(value)) << std::hexfloat << value;
  }

  std::vector<double> magnitudes_;  // values of the finite patterns with a clear sign bit, ascending
};

struct TraitsName {
  template <class Traits>
  static std::string GetName(int) {
    return std::string(to_string(dtype_of<typename Traits::Type>));
  }
};
using AllTraits = testing::Types<F16Traits, BF16Traits, F8E4M3Traits, F8E5M2Traits>;
TYPED_TEST_SUITE(NarrowFloat, AllTraits, TraitsName);

TYPED_TEST(NarrowFloat, ConvertsEveryPatternExactly) {
  for (uint32_t bits = 0; bits < this->kFormat.num_patterns(); ++bits) {
    const double expected = this->kFormat.decode(bits);
    const auto widened = static_cast<float>(this->from_bits(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(widened), expected) << bits;
      ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(NarrowFloat, EveryPatternSurvivesTheRoundTrip) {
  using Narrow = typename TypeParam::Type;
  for (uint32_t bits = 0; bits < this->kFormat.num_patterns(); ++bits) {
    const auto widened = static_cast<float>(this->from_bits(bits));
    const Narrow back(widened);
    if (std::isnan(widened))
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    else if (std::isinf(widened) && this->kFormat.saturates)
      ASSERT_EQ(std::fabs(static_cast<float>(back)), TypeParam::kMaxFinite) << bits;
    else
      ASSERT_EQ(uint32_t{back.bits}, bits);
  }
}

TYPED_TEST(NarrowFloat, RoundsToTheNearestAndTiesToEven) {
  double previous = 0.0;
  for (double magnitude : this->magnitudes_) {
    const auto exact = static_cast<float>(magnitude);
    const auto middle = static_cast<float>((magnitude + previous) / 2);  // exact: needs one more bit
    for (float center : {exact, middle})
      for (float value : {center, std::nextafter(center, kInf), std::nextafter(center, 0.0f)}) {
        this->expect_nearest(value);
        this->expect_nearest(-value);
      }
    previous = magnitude;
  }
}

TYPED_TEST(NarrowFloat, RoundsASweepThroughAllFloats) {
  constexpr uint64_t kStride = 1021;  // a prime, so that the low bits cover all values
  for (uint64_t pattern = 0; pattern < uint64_t{1} << 32; pattern += kStride) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(pattern));
    if (!std::isnan(value)) this->expect_nearest(value);
  }
}

TYPED_TEST(NarrowFloat, RoundsAtTheEdgeOfItsRange) {
  const double last = this->magnitudes_.back();
  const double before = this->magnitudes_[this->magnitudes_.size() - 2];
  const auto tie = static_cast<float>(last + (last - before) / 2);
  ASSERT_EQ(static_cast<float>(last), TypeParam::kMaxFinite);
  for (float value :
       {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, kInf), std::numeric_limits<float>::max(), kInf}) {
    this->expect_nearest(value);
    this->expect_nearest(-value);
  }
}

TYPED_TEST(NarrowFloat, KeepsTheSignOfZeroAndOfValuesRoundedToZero) {
  using Narrow = typename TypeParam::Type;
  EXPECT_EQ(uint32_t{Narrow(0.0f).bits}, 0u);
  EXPECT_EQ(uint32_t{Narrow(-0.0f).bits}, this->kFormat.sign_bit());
  EXPECT_EQ(uint32_t{Narrow(std::numeric_limits<float>::denorm_min()).bits}, 0u);
  EXPECT_EQ(uint32_t{Narrow(-std::numeric_limits<float>::denorm_min()).bits}, this->kFormat.sign_bit());
}

TYPED_TEST(NarrowFloat, EveryNaNStaysNaN) {
  using Narrow = typename TypeParam::Type;
  // Payloads: only the top bit, only the lowest bit, bits in the middle, and all bits; both signs.
  for (uint32_t payload : {0x400000u, 0x1u, 0x8000u, 0x10000u, 0x7fffffu})
    for (uint32_t sign : {0u, 0x80000000u}) {
      const Narrow narrowed(std::bit_cast<float>(sign | 0x7f800000u | payload));
      EXPECT_TRUE(std::isnan(static_cast<float>(narrowed))) << std::hex << (sign | payload);
    }
}

TEST(F16, MatchesTheCompilersFloat16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto expected = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    const auto widened = static_cast<float>(F16::from_bits(static_cast<uint16_t>(bits)));
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(widened));
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(widened), std::bit_cast<uint32_t>(expected)) << bits;
  }
  constexpr uint64_t kStride = 1021;
  for (uint64_t pattern = 0; pattern < uint64_t{1} << 32; pattern += kStride) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(pattern));
    if (std::isnan(value)) continue;
    ASSERT_EQ(F16(value).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(value)))
        << std::hexfloat << value;
  }
}

// Values of the OCP 8-bit floating point specification, revision 1.0.
TEST(F8E4M3, MatchesTheSpecification) {
  EXPECT_EQ(static_cast<float>(F8E4M3::from_bits(0x7e)), 448.0f);
  EXPECT_EQ(static_cast<float>(F8E4M3::from_bits(0x08)), 0x1p-6f);
  EXPECT_EQ(static_cast<float>(F8E4M3::from_bits(0x07)), 0.875f * 0x1p-6f);
  EXPECT_EQ(static_cast<float>(F8E4M3::from_bits(0x01)), 0x1p-9f);
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E4M3::from_bits(0xff))));
  EXPECT_EQ(F8E4M3(-kInf).bits, 0xfe);
}

TEST(F8E5M2, MatchesTheSpecification) {
  EXPECT_EQ(static_cast<float>(F8E5M2::from_bits(0x7b)), 57344.0f);
  EXPECT_EQ(static_cast<float>(F8E5M2::from_bits(0x04)), 0x1p-14f);
  EXPECT_EQ(static_cast<float>(F8E5M2::from_bits(0x03)), 0.75f * 0x1p-14f);
  EXPECT_EQ(static_cast<float>(F8E5M2::from_bits(0x01)), 0x1p-16f);
  EXPECT_EQ(static_cast<float>(F8E5M2::from_bits(0xfc)), -kInf);
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E5M2::from_bits(0x7d))));
  EXPECT_EQ(F8E5M2(kInf).bits, 0x7b);
}

constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2,
                                DType::kI32, DType::kI64, DType::kU8,   DType::kU64,    DType::kI8};

TEST(DType, ReportsElementSizes) {
  EXPECT_EQ(size_of(dtype_of<float>), sizeof(float));
  EXPECT_EQ(size_of(dtype_of<F16>), sizeof(F16));
  EXPECT_EQ(size_of(dtype_of<BF16>), sizeof(BF16));
  EXPECT_EQ(size_of(dtype_of<F8E4M3>), sizeof(F8E4M3));
  EXPECT_EQ(size_of(dtype_of<F8E5M2>), sizeof(F8E5M2));
  EXPECT_EQ(size_of(dtype_of<int32_t>), sizeof(int32_t));
  EXPECT_EQ(size_of(dtype_of<int64_t>), sizeof(int64_t));
  EXPECT_EQ(size_of(dtype_of<uint8_t>), sizeof(uint8_t));
  EXPECT_EQ(size_of(dtype_of<uint64_t>), sizeof(uint64_t));
  EXPECT_EQ(dtype_of<TokenSlot>, DType::kI32);
}

TEST(DType, ClassifiesFloatsIntegersAndFp8) {
  for (DType dtype : kAllDTypes) {
    const bool integer = dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8 ||
                         dtype == DType::kU64 || dtype == DType::kI8;
    EXPECT_EQ(is_float(dtype), !integer) << dtype;
    EXPECT_EQ(is_fp8(dtype), is_float(dtype) && size_of(dtype) == 1) << dtype;
  }
}

TEST(DType, ParsesFullAndShortNames) {
  for (DType dtype : kAllDTypes)
    if (is_float(dtype)) {
      EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    }
  EXPECT_EQ(parse_dtype("half"), DType::kF16);
  EXPECT_EQ(parse_dtype("bf16"), DType::kBF16);
  EXPECT_EQ(parse_dtype("float8_e4m3fn"), DType::kF8E4M3);
  EXPECT_EQ(parse_dtype("e5m2"), DType::kF8E5M2);
}

TEST(DType, ListsAcceptedNamesForAnUnknownName) {
  EXPECT_EQ(testing_support::error_message(ErrorCode::kInvalidArgument, [] { parse_dtype("int4"); }),
            "dtype 'int4': expected float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
  EXPECT_EQ(
      testing_support::error_message(ErrorCode::kInvalidArgument, [] { parse_dtype("int4", "qkv_dtype"); }),
      "qkv_dtype 'int4': expected float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
}

TEST(DType, DispatchesFloatTypesAndRejectsIntegers) {
  for (DType dtype : kAllDTypes) {
    int num_calls = 0;
    const bool visited = visit_float_dtype(dtype, [&](auto tag) {
      ++num_calls;
      EXPECT_EQ(dtype_of<typename decltype(tag)::type>, dtype);
    });
    EXPECT_EQ(visited, is_float(dtype)) << dtype;
    EXPECT_EQ(num_calls, is_float(dtype) ? 1 : 0) << dtype;
  }
}

}  // namespace
}  // namespace attend
