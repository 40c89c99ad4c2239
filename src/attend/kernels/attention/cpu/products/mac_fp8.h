// Multiplies and accumulates fp8 values that are converted with tables (fp8_table.h), 64 elements of a row at
// a time, for few query rows (skinny.h). Rows are whole blocks.
#pragma once

#include "attend/kernels/common/cpu/mac_bf16.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kFp8Block = 64;

// Moves lane i of quarter q to lane q of quarter i, in lanes of four floats. It is its own inverse.
inline void transpose_quarters(__m512 (&x)[4]) {
  const __m512 low01 = _mm512_shuffle_f32x4(x[0], x[1], 0x44),
               high01 = _mm512_shuffle_f32x4(x[0], x[1], 0xee);
  const __m512 low23 = _mm512_shuffle_f32x4(x[2], x[3], 0x44),
               high23 = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
  x[0] = _mm512_shuffle_f32x4(low01, low23, 0x88);
  x[1] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
  x[2] = _mm512_shuffle_f32x4(high01, high23, 0x88);
  x[3] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
}

inline __m512i load_fp8_block(const void* row) {
  return row == nullptr ? __m512i{} : _mm512_loadu_si512(row);
}

// For bfloat16 queries.
struct Bf16Fp8Mac : Bf16Mac {
  static constexpr int kBlock = kFp8Block, kBlockVecs = 2, kColumnVecs = 4;

  template <class T>
  static void load_block(const T* row, int, StepVec (&steps)[kBlockVecs]) {
    Fp8Registers<T>().convert(_mm512_loadu_si512(row), steps[0], steps[1]);
  }
  template <class T>
  static void load_block_across(const char* const (&rows)[kElements], int d, int,
                                StepVec (&steps)[kColumnVecs]) {
    __m512i bytes[kElements];
    for (int i = 0; i < kElements; ++i) bytes[i] = load_fp8_block(rows[i] == nullptr ? nullptr : rows[i] + d);
    const Fp8Registers<T> table;
    table.convert(_mm512_unpacklo_epi8(bytes[0], bytes[1]), steps[0], steps[1]);
    table.convert(_mm512_unpackhi_epi8(bytes[0], bytes[1]), steps[2], steps[3]);
  }
  // Puts the first eight of each 16 elements before the other eight.
  template <class T>
  static void order_query(StepVec (&steps)[kBlockVecs]) {
    const StepVec low = steps[0], second_halves = _mm512_add_epi32(first_halves(), _mm512_set1_epi32(4));
    steps[0] = _mm512_permutex2var_epi32(low, first_halves(), steps[1]);
    steps[1] = _mm512_permutex2var_epi32(low, second_halves, steps[1]);
  }
  // Puts a quarter of each 16 columns into each vector.
  template <class T>
  static void order_columns(F32 (&columns)[kColumnVecs]) {
    transpose_quarters(columns);
  }
  template <class T>
  static void restore_columns(F32 (&columns)[kColumnVecs]) {
    transpose_quarters(columns);
  }
};

// For queries of any dtype, in float32.
struct F32Fp8Mac : F32Mac<Avx512> {
  static constexpr int kBlock = kFp8Block, kBlockVecs = 4, kColumnVecs = 4;

  template <class T>
  static void load_block(const T* row, int, StepVec (&steps)[kBlockVecs]) {
    __m512i first, second;
    Fp8Registers<T>().convert(_mm512_loadu_si512(row), first, second);
    Avx512::split_pairs(first, steps[0], steps[1]);
    Avx512::split_pairs(second, steps[2], steps[3]);
  }
  template <class T>
  static void load_block_across(const char* const (&rows)[kElements], int d, int n,
                                StepVec (&steps)[kColumnVecs]) {
    load_block(reinterpret_cast<const T*>(rows[0]) + d, n, steps);
  }
  // Puts even and odd elements of the first eight of each 16 first, then those of the other eight.
  template <class T>
  static void order_query(StepVec (&steps)[kBlockVecs]) {
    order_columns<T>(steps);
  }
  template <class T>
  static void order_columns(F32 (&columns)[kColumnVecs]) {
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    for (F32& column : columns) column = _mm512_permutexvar_ps(order, column);
    transpose_quarters(columns);
  }
  template <class T>
  static void restore_columns(F32 (&columns)[kColumnVecs]) {
    const __m512i natural = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    transpose_quarters(columns);
    for (F32& column : columns) column = _mm512_permutexvar_ps(natural, column);
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
