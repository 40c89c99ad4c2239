// Products of fp8 K and V with AVX2: a tile's rows are converted to f16 first (fp8_halves.h). This needs six
// instructions per 16 elements, while arithmetic through float32 needs 20. The f16 rows stay in the L1 cache:
// those of K until V overwrites them.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/attention/cpu/products/vector_products.h"
#include "attend/kernels/common/cpu/fp8_halves.h"
#include "attend/kernels/common/cpu/simd_avx2.h"

namespace attend::kernels::cpu {
namespace {

// Restores NaN: E4M3 has one NaN, with all bits set except the sign, which is converted to a finite value.
inline void restore_nan(const F8E4M3* row, int dim, uint16_t* to) {
  for (int d = 0; d < dim; ++d)
    if ((row[d].bits & 0x7f) == 0x7f) to[d] = 0x7e00;
}

// to = row / kFactor in f16. Prefetches the same bytes of `next`. Up to 31 extra elements are written.
template <class T>
void convert_row(const T* row, const char* next, int dim, uint16_t* to) {
  constexpr int kChunk = 32;
  __m256i largest = _mm256_setzero_si256();  // without signs
  const auto convert = [&](const T* from, uint16_t* halves) __attribute__((always_inline)) {
    const auto* const vectors = reinterpret_cast<const __m256i*>(from);
    const __m256i bytes = _mm256_loadu_si256(vectors);
    if (Fp8Halves<T>::kDropsNaN) largest = _mm256_max_epu8(largest, _mm256_add_epi8(bytes, bytes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(halves), Fp8Halves<T>::of(from));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(halves + 16), Fp8Halves<T>::of(from + 16));
  };
  int d = 0;
  for (; d + kChunk <= dim; d += kChunk) {
    if (d % 64 == 0) prefetch(next, reinterpret_cast<const char*>(row), d);
    convert(row + d, to + d);
  }
  if (d < dim) {
    T rest[kChunk] = {};
    std::memcpy(static_cast<void*>(rest), row + d, static_cast<size_t>(dim - d));
    convert(rest, to + d);
  }
  if constexpr (Fp8Halves<T>::kDropsNaN)
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, _mm256_set1_epi8(-2))) != 0)
      restore_nan(row, dim, to);
}

// For a problem with scales that include Fp8Halves<T>::kFactor.
template <class T>
class Fp8Products {
  using Halves = VectorProducts<F32Mac<Avx2>, F16>;

 public:
  using Simd = Avx2;
  static constexpr int kPVecs = Halves::kPVecs;

  explicit Fp8Products(const ItemContext& context) : context_(context), products_(context) {}

  void pack_queries() { products_.pack_queries(); }

  void multiply_keys(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    prefetch_run_starts(context_.problem, next);
    convert_rows(tile.k, next.k, context_.problem.k.dim, halves_.k);
    halves_.present = tile.present;
    products_.multiply_keys(halves_, kNoNext, row_begin, row_end);
  }

  void store_p(int row, int key, const Simd::F32 (&p)[kPVecs]) { products_.store_p(row, key, p); }

  void add_values(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    convert_rows(tile.v, next.v, context_.problem.v.dim, halves_.v);
    products_.add_values(halves_, kNoNext, row_begin, row_end);
  }

  void restore_columns(float* row) const { products_.restore_columns(row); }

 private:
  void convert_rows(const char* const (&rows)[kTileKeys], const char* const (&next)[kTileKeys], int dim,
                    const char* (&converted)[kTileKeys]) {
    const int stride = row_stride(dim);
    uint16_t* to = context_.scratch.rows;
    for (int key = 0; key < kTileKeys; ++key, to += stride) {
      converted[key] = rows[key] == nullptr ? nullptr : reinterpret_cast<const char*>(to);
      if (rows[key] != nullptr) convert_row(reinterpret_cast<const T*>(rows[key]), next[key], dim, to);
    }
  }

  static constexpr TileRows kNoNext{};

  const ItemContext& context_;
  Halves products_;
  TileRows halves_{};
};

template <class T>
void attend_fp8_item(const AttentionProblem& problem, const WorkItem& item, int kv_head,
                     TileScratch& scratch) {
  AttentionProblem half_problem = problem;
  half_problem.scale *= Fp8Halves<T>::kFactor;
  half_problem.v_scale *= Fp8Halves<T>::kFactor;
  attend_item<Fp8Products<T>>(half_problem, item, kv_head, scratch);
}

}  // namespace
}  // namespace attend::kernels::cpu
