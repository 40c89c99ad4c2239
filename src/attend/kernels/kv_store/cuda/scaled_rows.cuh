// Scaled latent rows (selected_rows.h) on the device.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/kv_store/scaled_row_descale.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::cuda {

inline constexpr int kScaledRank = kScaledRow.rank, kScaledWidth = kScaledRow.width(),
                     kScaledGroup = kScaledRow.values_per_scale, kScaledScalesAt = kScaledRow.scales_at,
                     kScaledRopeAt = kScaledRow.rope_at, kScaledBytes = kScaledRow.bytes;

// Loads value d of a row.
__device__ inline float load_scaled(const uint8_t* row, int d) {
  if (d >= kScaledRank) return load_element(row + kScaledRopeAt, d - kScaledRank, Element::kBF16);
  return load_element(row, d, Element::kF8E4M3) *
         load_element(row + kScaledScalesAt, d / kScaledGroup, Element::kF32);
}

// Threads per row: each of kScaledRank / 4 threads has the values from 4 thread on. A warp has the values of
// one descale.
inline constexpr int kScaledThreads = kScaledRank / 4;
static_assert(kScaledGroup == 4 * 32);

// Quantizes and stores this thread's values and the descale; `numbers` become the stored values.
__device__ inline void store_scaled(uint8_t* row, int thread, float (&numbers)[4]) {
  float largest = 0.0f;
#pragma unroll
  for (const float number : numbers) largest = fmaxf(largest, fabsf(number));
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  const float descale = scaled_row_descale(largest);
  const float inverse = 1.0f / descale;  // exact: a power of two
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_element(row, 4 * thread + i, Element::kF8E4M3, numbers[i] * inverse);
    numbers[i] = load_element(row, 4 * thread + i, Element::kF8E4M3) * descale;
  }
  if (thread % 32 == 0) store_element(row + kScaledScalesAt, thread / 32, Element::kF32, descale);
}

}  // namespace attend::kernels::cuda
