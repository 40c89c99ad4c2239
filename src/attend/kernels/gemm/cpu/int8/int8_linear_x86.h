// Products in int8 with vectors of 256 bits. Dot multiplies unsigned by signed bytes and adds neighboring
// products:
//
//   dot(u, s)           eight sums of four products
//   dot(u, s, factors)  the same, with a factor of at most 127 for each pair of products
//
// A tile is some rows of x times some output features. Lane j of its sums adds inputs 4 j to 4 j + 3 of every
// unit:
//
//   for each run of 8 units: sums[lane u] -= minimum[u] * sum of x in unit u
//     for each unit: sums += float(dot(codes, x codes)) * (scale * scale of x)
//
// Two products that are added in 16 bits (vpmaddubsw) are at most 2 * 128 * 127, so they do not saturate.
#pragma once

#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/gemm/cpu/add_bias.h"
#include "attend/kernels/gemm/cpu/int8/int8_panels_x86.h"

namespace attend::kernels::cpu {
namespace {

// Runs ahead of the current one whose weights are prefetched, in bytes.
constexpr int64_t kInt8BytesAhead = 1024;
constexpr int kInt8TileRows = 4;

// Output features of a strip, `step` apart: each is a stream of memory that the hardware prefetcher follows.
struct Strip {
  int64_t first = 0, step = 1;

  int64_t operator[](int64_t i) const { return first + i * step; }
};

template <class Dot, class Units, int kRows, int kOuts>
void multiply_int8_tile(const Units& units, const LinearPart& part, int64_t row, Strip outs,
                        int64_t runs_ahead) {
  const int64_t num_runs = int8_row_runs(part.in_features);
  const Int8Run* x[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) x[r] = int8_row(part, row + r);
  __m256 sums[kRows][kOuts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sums[r][o] = _mm256_setzero_ps();
  for (int64_t run = 0; run < num_runs; ++run) {
    const int count = run_units(part, run);
    typename Units::Run heads[kOuts];
    alignas(32) float scales[kRows][kOuts][kInt8RunUnits];
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) {
      if (runs_ahead > 0) units.fetch(outs[o], run + runs_ahead);
      RunScales weights;
      heads[o] = units.begin(outs[o], run, count, weights);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int8Run& from = x[r][run];
        _mm256_store_ps(scales[r][o], _mm256_mul_ps(weights.scales, _mm256_load_ps(from.scales)));
        const __m256 first = _mm256_load_ps(from.sums[0]), second = _mm256_load_ps(from.sums[1]);
        if constexpr (Units::kMinima == Int8Minima::kUnits)
          sums[r][o] = _mm256_fnmadd_ps(weights.minima[0], _mm256_add_ps(first, second), sums[r][o]);
        if constexpr (Units::kMinima == Int8Minima::kHalves)
          sums[r][o] = _mm256_fnmadd_ps(weights.minima[1], second,
                                        _mm256_fnmadd_ps(weights.minima[0], first, sums[r][o]));
      }
    }
    const auto add_unit = [&](int u) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) {
        const __m256i codes = Units::unit(heads[o], u);
        __m256i magnitudes = codes, factors = {};
        if constexpr (Units::kMaxCode == kSignedCodes) magnitudes = _mm256_abs_epi8(codes);
        if constexpr (Units::kHasHalfScales) factors = Units::half_scales(heads[o], u);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          __m256i inputs = load_bytes(x[r][run].codes + u * kInt8UnitInputs);
          if constexpr (Units::kMaxCode == kSignedCodes) inputs = _mm256_sign_epi8(inputs, codes);
          __m256i products;
          if constexpr (Units::kHasHalfScales)
            products = Dot::dot(magnitudes, inputs, factors);
          else
            products = Dot::dot(magnitudes, inputs);
          sums[r][o] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), _mm256_broadcast_ss(&scales[r][o][u]),
                                       sums[r][o]);
        }
      }
    };
    if (count == kInt8RunUnits) {
#pragma GCC unroll 8
      for (int u = 0; u < kInt8RunUnits; ++u) add_unit(u);
    } else {
      for (int u = 0; u < count; ++u) add_unit(u);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o)
      part.out[(row + r) * part.out_stride + outs[o]] = Avx2::reduce_add(sums[r][o]);
}

// Multiplies rows in tiles of kRows and kRows - 1; weights stay in the L1 cache between tiles. The first tile
// prefetches.
template <class Dot, class Units, int kRows, int kOuts>
void multiply_int8_strip(const Units& units, const LinearPart& part, int64_t num_tiles, Strip outs,
                         int64_t runs_ahead) {
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = tile * part.num_rows / num_tiles, end = (tile + 1) * part.num_rows / num_tiles;
    const int64_t ahead = tile == 0 ? runs_ahead : 0;
    if (end - row == kRows)
      multiply_int8_tile<Dot, Units, kRows, kOuts>(units, part, row, outs, ahead);
    else if constexpr (kRows > 1)
      multiply_int8_tile<Dot, Units, kRows - 1, kOuts>(units, part, row, outs, ahead);
  }
}

// `height`: rows of the taller of num_tiles tiles, at most kRows.
template <class Dot, class Units, int kRows>
void multiply_int8_rows(const Units& units, const LinearPart& part, int64_t num_tiles, int64_t height) {
  if constexpr (kRows > 0) {
    if (height < kRows) return multiply_int8_rows<Dot, Units, kRows - 1>(units, part, num_tiles, height);
    constexpr int kOuts = kRows <= 2 ? 4 : Dot::kRegisters / 8;
    const int64_t run_bytes = ceil_div(weight_row_bytes(part), int8_row_runs(part.in_features));
    const int64_t num_strips = part.num_outs / kOuts, runs_ahead = ceil_div(kInt8BytesAhead, run_bytes);
    for (int64_t strip = 0; strip < num_strips; ++strip) {
      const Strip outs = num_tiles == 1 ? Strip{strip, num_strips} : Strip{strip * kOuts, 1};
      multiply_int8_strip<Dot, Units, kRows, kOuts>(units, part, num_tiles, outs, runs_ahead);
    }
    for (int64_t out = num_strips * kOuts; out < part.num_outs; ++out)
      multiply_int8_strip<Dot, Units, kRows, 1>(units, part, num_tiles, {out, 1}, runs_ahead);
  }
}

template <class Dot, class Units>
void multiply_int8_units(const LinearPart& part) {
  const int64_t num_tiles = ceil_div(part.num_rows, int64_t{kInt8TileRows});
  if (num_tiles == 0) return;
  multiply_int8_rows<Dot, Units, kInt8TileRows>(Units(part), part, num_tiles,
                                                ceil_div(part.num_rows, num_tiles));
}

// Calls fn with the class of the weight's units.
template <class Fn>
void visit_units(const LinearPart& part, const Fn& fn) {
  using enum BlockFormat;
  if (part.groups.format == WeightFormat::kInt8) return fn(TypeTag<Int8GroupUnits>{});
  if (part.groups.format == WeightFormat::kMxFp4) return fn(TypeTag<PairUnits<true>>{});
  if (part.groups.format == WeightFormat::kInt4) return fn(TypeTag<PairUnits<false>>{});
  switch (part.groups.block_format) {
    case kQ4_0:
      return fn(TypeTag<NibbleUnits<kQ4_0>>{});
    case kQ4_1:
      return fn(TypeTag<NibbleUnits<kQ4_1>>{});
    case kQ5_0:
      return fn(TypeTag<NibbleUnits<kQ5_0>>{});
    case kQ5_1:
      return fn(TypeTag<NibbleUnits<kQ5_1>>{});
    case kIq4Nl:
      return fn(TypeTag<NibbleUnits<kIq4Nl>>{});
    case kMxFp4:
      return fn(TypeTag<NibbleUnits<kMxFp4>>{});
    case kQ8_0:
      return fn(TypeTag<Q8Units>{});
    case kQ4K:
      return fn(TypeTag<PackedScaleUnits<kQ4K>>{});
    case kQ5K:
      return fn(TypeTag<PackedScaleUnits<kQ5K>>{});
    case kQ2K:
      return fn(TypeTag<HalfScaleUnits<kQ2K>>{});
    case kQ3K:
      return fn(TypeTag<HalfScaleUnits<kQ3K>>{});
    case kQ6K:
      return fn(TypeTag<HalfScaleUnits<kQ6K>>{});
    case kIq4Xs:
      return fn(TypeTag<Iq4XsUnits>{});
  }
}

template <class Dot>
void multiply_int8(const LinearPart& part) {
  visit_units(part, [&]<class Units>(TypeTag<Units>) { multiply_int8_units<Dot, Units>(part); });
  add_bias<Avx2>(part);
}

template <class Dot>
void multiply_int8_panels(const LinearPart& part) {
  visit_units(part, [&]<class Units>(TypeTag<Units>) {
    LinearPart rest = part;
    const int64_t num_outs = multiply_panels<Dot, Units>(part);
    skip_outs(rest, num_outs);
    rest.out += num_outs;
    multiply_int8_units<Dot, Units>(rest);
  });
  add_bias<Avx2>(part);
}

// Units with smaller values are 0: 127 / maximum would overflow.
constexpr float kMinMaximum = 0x1p-100f;

inline float sum_of_half(__m256i a, __m256i b) {
  const __m256i sums = _mm256_add_epi32(a, b);
  const __m128i quad = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  const __m128i pair = _mm_add_epi32(quad, _mm_shuffle_epi32(quad, _MM_SHUFFLE(1, 0, 3, 2)));
  return static_cast<float>(_mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 1))));
}

// x: 32 values.
inline void quantize_unit(const float* x, bool splits_pairs, Int8Run& run, int u) {
  __m256 values[4];
  // Magnitudes are ordered like their bits, with NaN last.
  __m256i maxima = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    values[v] = _mm256_loadu_ps(x + 8 * v);
    maxima = _mm256_max_epi32(maxima, _mm256_castps_si256(Avx2::abs(values[v])));
  }
  __m128i maximum = _mm_max_epi32(_mm256_castsi256_si128(maxima), _mm256_extracti128_si256(maxima, 1));
  maximum = _mm_max_epi32(maximum, _mm_shuffle_epi32(maximum, _MM_SHUFFLE(1, 0, 3, 2)));
  maximum = _mm_max_epi32(maximum, _mm_shuffle_epi32(maximum, 1));
  const bool finite = _mm_cvtsi128_si32(maximum) < 0x7f800000;
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(maximum));
  __m256i* const to = reinterpret_cast<__m256i*>(run.codes + u * kInt8UnitInputs);
  if (!finite || largest < kMinMaximum) {
    _mm256_store_si256(to, _mm256_setzero_si256());
    run.scales[u] = run.sums[0][u] = run.sums[1][u] = finite ? 0.0f : __builtin_nanf("");
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  __m256i codes[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) codes[v] = _mm256_cvtps_epi32(_mm256_mul_ps(values[v], inverse));
  const float scale = largest / 127.0f;
  run.scales[u] = scale;
  run.sums[0][u] = scale * sum_of_half(codes[0], codes[1]);
  run.sums[1][u] = scale * sum_of_half(codes[2], codes[3]);
  // Packing interleaves the 128-bit halves; the permutation orders groups of four bytes.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
  const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  if (!splits_pairs) return _mm256_store_si256(to, ordered);
  const __m256i split = _mm256_shuffle_epi8(
      ordered,
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
  _mm256_store_si256(to, _mm256_permute4x64_epi64(split, _MM_SHUFFLE(3, 1, 2, 0)));
}

void quantize_int8(const Int8Source& source, Int8Run* to) {
  for (int64_t run = 0; run < int8_row_runs(source.in_features); ++run) {
    Int8Run made;  // `to` may overlap with the run's inputs
    for (int u = 0; u < kInt8RunUnits; ++u) {
      const int64_t first = run * kInt8RunInputs + u * kInt8UnitInputs;
      if (source.input_order == nullptr && first + kInt8UnitInputs <= source.in_features) {
        quantize_unit(source.x + first, source.splits_pairs, made, u);
        continue;
      }
      alignas(32) float x[kInt8UnitInputs] = {};
      for (int i = 0; i < kInt8UnitInputs && first + i < source.in_features; ++i)
        x[i] = source.x[source.input_order == nullptr ? first + i : source.input_order[first + i]];
      quantize_unit(x, source.splits_pairs, made, u);
    }
    to[run] = made;
  }
}

template <class Dot>
Int8Linear make_int8_linear() {
  return {.quantize = &quantize_int8,
          .multiply = &multiply_int8<Dot>,
          .multiply_many = &multiply_int8_panels<Dot>};
}

}  // namespace
}  // namespace attend::kernels::cpu
