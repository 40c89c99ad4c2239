// Products of many rows of x: panels of eight output features, whose sums are lanes of a vector.
//
//   panel, one unit:  vector g = inputs 4 g to 4 g + 3 of each of the 8 outputs      (a transpose of 8 units)
//   row of x:         the same 4 inputs in all lanes (vpbroadcastd)
//   sums              in 16 bits over as many vectors as cannot overflow, then in 32 bits over the inputs of
//   a scale,
//                     then in float32
//
// The row kernel converts and scales 8 partial sums of a unit per output; here it is one, so a product needs
// fewer instructions: for 4 bits 2.5 to 3 per 32 products, instead of 4. Panels of 1024 inputs stay in the L1
// cache.
#pragma once

#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/gemm/cpu/int8/int8_units_x86.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kPanelOuts = 8, kPanelGroups = kInt8UnitInputs / 4;
inline constexpr int64_t kPanelRuns = 4;

// Parts of a unit with one scale.
template <class Units>
inline constexpr int kScaleParts = Units::kHasHalfScales ? 2 : 1;

template <class Units>
struct PanelUnit {
  __m256i codes[kPanelGroups];
  __m256 scales[kScaleParts<Units>];
  __m256 minima[kScaleParts<Units>];  // not used if there are none
};

template <class Units>
void pack_panel(const Units& units, int64_t first_out, int64_t run, int count, PanelUnit<Units>* to) {
  typename Units::Run heads[kPanelOuts];
  RunScales scales[kPanelOuts];
  for (int o = 0; o < kPanelOuts; ++o) heads[o] = units.begin(first_out + o, run, count, scales[o]);
  // Row o of `rows` has a value per unit.
  const auto transpose = [&](const auto& row, const auto& store) {
    __m256 rows[kPanelOuts];
    for (int o = 0; o < kPanelOuts; ++o) rows[o] = row(o);
    Avx2::transpose(rows);
    for (int i = 0; i < 8; ++i) store(i, rows[i]);
  };
  for (int part = 0; part < kScaleParts<Units>; ++part) {
    transpose([&](int o) { return Units::kHasHalfScales ? scales[o].half_scales[part] : scales[o].scales; },
              [&](int u, __m256 x) { to[u].scales[part] = x; });
    if constexpr (Units::kMinima != Int8Minima::kNone)
      transpose([&](int o) { return scales[o].minima[part]; },
                [&](int u, __m256 x) { to[u].minima[part] = x; });
  }
#pragma GCC unroll 8
  for (int u = 0; u < kInt8RunUnits; ++u) {
    if (u >= count) break;
    transpose([&](int o) { return _mm256_castsi256_ps(Units::unit(heads[o], u)); },
              [&](int group, __m256 x) { to[u].codes[group] = _mm256_castps_si256(x); });
  }
}

// Adds the products of a panel of num_units units with rows of x, from run `first_run`, to `out`; it is
// overwritten if first_run is 0.
template <class Dot, class Units, int kRows>
void multiply_panel(const PanelUnit<Units>* panel, int num_units, const LinearPart& part, int64_t row,
                    int64_t first_run, float* out) {
  constexpr int kParts = kScaleParts<Units>, kGroups = kPanelGroups / kParts;
  constexpr int kSteps = std::min(Dot::panel_steps(Units::kMaxCode), kGroups);
  const Int8Run* x[kRows];
  __m256 sums[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    x[r] = int8_row(part, row + r) + first_run;
    sums[r] = first_run == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(out + r * part.out_stride);
  }
  for (int unit = 0; unit < num_units; ++unit) {
    const PanelUnit<Units>& weights = panel[unit];
    const int run = unit / kInt8RunUnits, u = unit % kInt8RunUnits;
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
      __m256i products[kRows];
#pragma GCC unroll 8
      for (int step = 0; step < kGroups; step += kSteps) {
        __m256i partial[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) partial[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int g = step; g < step + kSteps; ++g) {
          const int group = p * kGroups + g;
          const __m256i codes = weights.codes[group];
          __m256i magnitudes = codes;
          if constexpr (Units::kMaxCode == kSignedCodes) magnitudes = _mm256_abs_epi8(codes);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            int32_t four;
            std::memcpy(&four, x[r][run].codes + u * kInt8UnitInputs + 4 * group, sizeof four);
            __m256i inputs = _mm256_set1_epi32(four);
            if constexpr (Units::kMaxCode == kSignedCodes) inputs = _mm256_sign_epi8(inputs, codes);
            partial[r] = Dot::panel_add(partial[r], magnitudes, inputs);
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m256i finished = Dot::panel_sums(partial[r]);
          products[r] = step == 0 ? finished : _mm256_add_epi32(products[r], finished);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int8Run& from = x[r][run];
        const __m256 scale = _mm256_mul_ps(weights.scales[p], _mm256_broadcast_ss(&from.scales[u]));
        sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[r]), scale, sums[r]);
        if constexpr (Units::kMinima == Int8Minima::kHalves)
          sums[r] = _mm256_fnmadd_ps(weights.minima[p], _mm256_broadcast_ss(&from.sums[p][u]), sums[r]);
        if constexpr (Units::kMinima == Int8Minima::kUnits) {
          const __m256 sum =
              _mm256_add_ps(_mm256_broadcast_ss(&from.sums[0][u]), _mm256_broadcast_ss(&from.sums[1][u]));
          sums[r] = _mm256_fnmadd_ps(weights.minima[p], sum, sums[r]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(out + r * part.out_stride, sums[r]);
}

// Multiplies whole panels of output features and returns their number of outputs.
template <class Dot, class Units>
int64_t multiply_panels(const LinearPart& part) {
  constexpr int kRows = 4;
  const Units units(part);
  const int64_t num_runs = int8_row_runs(part.in_features);
  PanelUnit<Units> panel[kPanelRuns * kInt8RunUnits];
  int64_t out = 0;
  for (; out + kPanelOuts <= part.num_outs; out += kPanelOuts)
    for (int64_t run = 0; run < num_runs; run += kPanelRuns) {
      int num_units = 0;
      for (int64_t r = run; r < num_runs && r < run + kPanelRuns; ++r) {
        const int count = run_units(part, r);
        pack_panel(units, out, r, count, panel + num_units);
        num_units += count;
      }
      int64_t row = 0;
      for (; row + kRows <= part.num_rows; row += kRows)
        multiply_panel<Dot, Units, kRows>(panel, num_units, part, row, run,
                                          part.out + row * part.out_stride + out);
      for (; row < part.num_rows; ++row)
        multiply_panel<Dot, Units, 1>(panel, num_units, part, row, run,
                                      part.out + row * part.out_stride + out);
    }
  return out;
}

}  // namespace
}  // namespace attend::kernels::cpu
