// Conversion of blocks of fp8 to bfloat16, which is exact, in the cheapest order of elements.
#pragma once

#include <immintrin.h>

#include "attend/kernels/common/cpu/amx_parts.h"

namespace attend::kernels::cpu {
namespace {

// T: F8E4M3 or F8E5M2. 64 bytes are looked up together in tables of the lower and of the upper byte of a
// bfloat16, and the results are interleaved within each 128 bits: 9 instructions for the keys of a block, 10
// for a pair of values. Arithmetic through float32 needs 40.
template <class T>
class Fp8Blocks {
 public:
  static constexpr int kElements = 64;  // per block

  // Converts a block of one key.
  void convert_keys(const char* row, uint16_t* to) const {
    __m512i low, high;
    table_.look_up(_mm512_loadu_si512(row), low, high);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(to + 32, _mm512_unpackhi_epi8(low, high));
  }
  // Permutes a row of q to the order of convert_keys: element 16 i + 8 half + j of a block moves to 32 half +
  // 8 i + j.
  static void order_query(float* q, int dim) {
    for (int d = 0; d < dim; d += 64) {
      float natural[64];
      for (int i = 0; i < 64; ++i) natural[i] = q[d + i];
      for (int i = 0; i < 64; ++i) q[d + i % 16 / 8 * 32 + i / 16 * 8 + i % 8] = natural[i];
    }
  }
  // Converts blocks of two keys of V to one pair per column.
  void convert_values(const char* a, const char* b, uint32_t* to) const {
    const __m512i first = _mm512_loadu_si512(a), second = _mm512_loadu_si512(b);
    store_pairs(_mm512_unpacklo_epi8(first, second), to);
    store_pairs(_mm512_unpackhi_epi8(first, second), to + 32);
  }
  // Permutes columns in the order of convert_values to their natural order: column 16 i + 4 quarter + j of a
  // block is stored at 16 quarter + 4 i + j.
  static void restore_columns(float* row, int dim) {
    for (int d = 0; d < dim; d += 64) {
      float ordered[64];
      for (int i = 0; i < 64; ++i) ordered[i] = row[d + i];
      for (int i = 0; i < 64; ++i) row[d + i] = ordered[i % 16 / 4 * 16 + i / 16 * 4 + i % 4];
    }
  }

 private:
  void store_pairs(__m512i bytes, uint32_t* to) const {
    __m512i low, high;
    table_.look_up(bytes, low, high);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi8(low, high));
  }

  const Fp8Registers<T> table_{};
};

}  // namespace
}  // namespace attend::kernels::cpu
