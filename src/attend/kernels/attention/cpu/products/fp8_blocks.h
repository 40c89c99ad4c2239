// Blocks of fp8 as bfloat16, which every fp8 is, in the order that is cheapest to make.
#pragma once

#include <immintrin.h>

#include "attend/kernels/common/cpu/amx_parts.h"

namespace attend::kernels::cpu {
namespace {

// T: F8E4M3 or F8E5M2. 64 bytes at once are looked up in tables of the lower and of the upper byte of a
// bfloat16, which are then interleaved within each 128 bits: 9 instructions for the keys of a block, 10 for a
// pair of values. Arithmetic on the way to float32 takes 40.
template <class T>
class Fp8Blocks {
 public:
  static constexpr int kElements = 64;  // of a block

  // A block of one key.
  void convert_keys(const char* row, uint16_t* to) const {
    __m512i low, high;
    table_.look_up(_mm512_loadu_si512(row), low, high);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(to + 32, _mm512_unpackhi_epi8(low, high));
  }
  // Puts a row of q into the order of convert_keys: element 16 i + 8 half + j of a block comes at 32 half + 8
  // i + j.
  static void order_query(float* q, int dim) {
    for (int d = 0; d < dim; d += 64) {
      float natural[64];
      for (int i = 0; i < 64; ++i) natural[i] = q[d + i];
      for (int i = 0; i < 64; ++i) q[d + i % 16 / 8 * 32 + i / 16 * 8 + i % 8] = natural[i];
    }
  }
  // Blocks of two keys of V as one pair for each column.
  void convert_values(const char* a, const char* b, uint32_t* to) const {
    const __m512i first = _mm512_loadu_si512(a), second = _mm512_loadu_si512(b);
    store_pairs(_mm512_unpacklo_epi8(first, second), to);
    store_pairs(_mm512_unpackhi_epi8(first, second), to + 32);
  }
  // Puts columns in the order of convert_values into their natural one: column 16 i + 4 quarter + j of a
  // block comes at 16 quarter + 4 i + j.
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
