// Blocks of K and V as AMX multiplies them (amx_few_rows.h): bfloat16, in the order that is cheapest for the
// type as it lies in memory.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "attend/kernels/cpu/amx_parts.h"

namespace attend::kernels::cpu {
namespace {

// Of one element type T:
//   kElements                          of a block
//   convert_keys(row, to)              one key's block as bfloat16
//   order_query(q, dim)                puts the elements of a row of q into the order of convert_keys
//   convert_values(a, b, to)           blocks of two keys as one pair for each column
//   convert_present_values(a, b, to)   likewise; a null one counts as zeros
//   restore_columns(row, dim)          puts columns in the order of convert_values into their natural one
template <class T>
class AmxBlocks;

template <>
class AmxBlocks<BF16> {
 public:
  static constexpr int kElements = 32;

  void convert_keys(const BF16* row, uint16_t* to) const {
    _mm512_storeu_si512(to, _mm512_loadu_si512(row));
  }
  static void order_query(float*, int) {}
  void convert_values(const BF16* a, const BF16* b, uint32_t* to) const {
    store_pairs(_mm512_loadu_si512(a), _mm512_loadu_si512(b), to);
  }
  void convert_present_values(const BF16* a, const BF16* b, uint32_t* to) const {
    store_pairs(a == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(a),
                b == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(b), to);
  }
  static void restore_columns(float* row, int dim) {
    for (int d = 0; d < dim; d += 32) {
      __m512 low = _mm512_loadu_ps(row + d), high = _mm512_loadu_ps(row + d + 16);
      Bf16Mac::restore_columns<BF16>(low, high);
      _mm512_storeu_ps(row + d, low);
      _mm512_storeu_ps(row + d + 16, high);
    }
  }

 private:
  static void store_pairs(__m512i a, __m512i b, uint32_t* to) {
    _mm512_storeu_si512(to, _mm512_unpacklo_epi16(a, b));
    _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi16(a, b));
  }
};

// 64 bytes at once are looked up in tables of the lower and of the upper byte of a bfloat16, which are then
// interleaved within each 128 bits.
template <class T>
requires(std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2>) class AmxBlocks<T> {
 public:
  static constexpr int kElements = 64;

  void convert_keys(const T* row, uint16_t* to) const {
    __m512i low, high;
    table_.look_up(_mm512_loadu_si512(row), low, high);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(to + 32, _mm512_unpackhi_epi8(low, high));
  }
  // Element 16 i + 8 half + j of a block comes at 32 half + 8 i + j.
  static void order_query(float* q, int dim) {
    for (int d = 0; d < dim; d += 64) {
      float natural[64];
      for (int i = 0; i < 64; ++i) natural[i] = q[d + i];
      for (int i = 0; i < 64; ++i) q[d + i % 16 / 8 * 32 + i / 16 * 8 + i % 8] = natural[i];
    }
  }
  void convert_values(const T* a, const T* b, uint32_t* to) const {
    store_pairs(_mm512_loadu_si512(a), _mm512_loadu_si512(b), to);
  }
  void convert_present_values(const T* a, const T* b, uint32_t* to) const {
    store_pairs(a == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(a),
                b == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(b), to);
  }
  // Column 16 i + 4 quarter + j of a block comes at 16 quarter + 4 i + j.
  static void restore_columns(float* row, int dim) {
    for (int d = 0; d < dim; d += 64) {
      float ordered[64];
      for (int i = 0; i < 64; ++i) ordered[i] = row[d + i];
      for (int i = 0; i < 64; ++i) row[d + i] = ordered[i % 16 / 4 * 16 + i / 16 * 4 + i % 4];
    }
  }

 private:
  void store_pairs(__m512i a, __m512i b, uint32_t* to) const {
    __m512i low, high;
    table_.look_up(_mm512_unpacklo_epi8(a, b), low, high);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi8(low, high));
    table_.look_up(_mm512_unpackhi_epi8(a, b), low, high);
    _mm512_storeu_si512(to + 32, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(to + 48, _mm512_unpackhi_epi8(low, high));
  }

  const Fp8Registers<T> table_{};
};

}  // namespace
}  // namespace attend::kernels::cpu
